"""What a chain's excursions need on one GPU, and what each of them submits to its stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from seamline.errors import DeadlineError
from seamline.forms import ChainSpec, HostWork, SeamForm
from seamline_cuda.driver import call_host
from seamline_cuda.edges import Placed, placed
from seamline_cuda.loading import Loader
from seamline_cuda.mail import CudaMail
from seamline_cuda.mailbox import MAILBOX, MOST, arguments, threads_for
from seamline_cuda.memory import CudaMemory

__all__ = ["Excursions", "given_back"]

Submit: TypeAlias = Callable[[], object]


class Excursions:
    """
    What recording a chain opens, and what its excursions submit.

    Attributes
    ----------
    views
        Places that excursions read and write.
    hosts
        Name and host's work of each excursion.
    words
        Addresses by which excursions complain.

    Parameters
    ----------
    undo
        Told how to give back what is opened.
    """

    def __init__(
        self,
        memory: CudaMemory,
        loader: Loader,
        chain: ChainSpec,
        patience: float,
        undo: ExitStack,
    ) -> None:
        self.memory, self.loader, self.patience = memory, loader, patience
        self.works = chain.works
        self.hosts: list[tuple[str, Callable[[], object]]] = []
        self.words: list[int] = []
        given = [view for work in chain.works for view in (*work.outward, *work.inward)]
        self.views = [memory.checked(view) for view in given]
        kinds = [view.kind for view in self.views]
        self.mail = CudaMail.open(memory, chain.name, kinds, len(chain.works), patience)
        undo.callback(self.mail.close)
        undo.callback(given_back, memory, self.words)

    def submits(self, work: HostWork) -> list[Submit]:
        """Stage an excursion's values; give what it submits, in order."""
        index = len(self.hosts)
        outs = [self._staged(view) for view in work.outward]
        ins = [self._staged(view) for view in work.inward]
        host = work.prepare([one.array for one in outs], [one.array for one in ins])
        self.hosts.append((work.name, host))
        word, stream = self._word(work), self.memory.gpu.compute.handle
        if work.form is SeamForm.HOST_NODE:
            return [
                *(one.engine(stream, to_host=True) for one in outs),
                self._called(index, word),
                *(one.engine(stream, to_host=False) for one in ins),
            ]
        small_outs, large_outs = _sorted(outs)
        small_ins, large_ins = _sorted(ins)
        return [
            *(one.engine(stream, to_host=True) for one in large_outs),
            self._mailbox(index, word, small_outs, small_ins),
            *(one.engine(stream, to_host=False) for one in large_ins),
        ]

    def _staged(self, view: object) -> Placed:
        checked = self.memory.checked(view)
        return placed(checked, self.mail.room(checked.nbytes))

    def _word(self, work: HostWork) -> int:
        error = DeadlineError(
            f"the host did not answer within {self.patience:g} s, and the device went on "
            "without it",
            provider=work.provider,
            segment=work.name,
            node=work.node,
        )
        self.words.append(self.memory.complaints.take(error))
        return self.words[-1]

    def _called(self, index: int, word: int) -> Submit:
        flag = ctypes.c_uint32.from_address(word)

        def late() -> None:
            flag.value = 1

        address = self.mail.function(index, late)
        stream = self.memory.gpu.compute.handle
        return lambda: call_host(stream, address)

    def _mailbox(
        self, index: int, word: int, outs: Sequence[Placed], ins: Sequence[Placed]
    ) -> Submit:
        forms = [work.form for work in self.works]
        later = SeamForm.MAILBOX in forms[index + 1 :]
        outward = [(one.device, one.host, one.nbytes // 4) for one in outs]
        inward = [(one.host, one.device, one.nbytes // 4) for one in ins]
        given = arguments(
            outward,
            inward,
            shared=self.mail.shared,
            own=self.mail.own.address,
            times=self.mail.times.address,
            late=word,
            index=index,
            bump=0 if later else len(self.works),
            ring=self.mail.ring,
            patience=int(self.patience * 1e9),
        )
        threads = threads_for([*outward, *inward])
        return self.loader.launch(MAILBOX, given, blocks=1, threads=threads)


def _sorted(values: Sequence[Placed]) -> tuple[list[Placed], list[Placed]]:
    """Part values that the kernel copies from those that are the engine's."""
    small: list[Placed] = []
    large: list[Placed] = []
    for one in values:
        (small if one.by_words and len(small) < MOST else large).append(one)
    return small, large


def given_back(memory: CudaMemory, words: Sequence[int]) -> None:
    """Give back the words that a chain's excursions complain by."""
    for word in words:
        memory.complaints.give_back(word)
