"""
Functions that compiled code calls: typed and lowered, without machine code of their own.

Numba makes of every function that another one calls a complete one: optimised, wrapped
for Python and for C, turned into machine code and kept on disk; and then LLVM links its
code into the caller and optimises it there again. A command has a dozen such functions, so
most of the functions that a first start made were never run. Here what a compiled function
calls becomes LLVM's IR in a library that the caller links, and nothing more. Called from
Python, the same function is compiled as Numba always does.
"""

from __future__ import annotations

from typing import Any

from seamline_cpu.ir import codegen, compiler, dispatching, registry, types

__all__ = ["Inlining"]


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """
    IR for callers to link, and no machine code.

    It is optimised: left to the caller's passes, loops came out slower.
    """

    def _finalize_final_module(self) -> None:
        """Check the module, and leave it out of the engine that makes machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _Lowered(dispatching._FunctionCompiler):  # type: ignore[misc]
    """Numba's driver for one function, up to the IR."""

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        flags = compiler.Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        target = self.targetdescr.target_context
        return compiler.compile_extra(
            self.targetdescr.typing_context, target, self.py_func, args=args,
            return_type=return_type, flags=flags, locals=self.locals,
            library=_Library(target.codegen(), self.py_func.__qualname__),
            pipeline_class=self.pipeline_class,
        )  # fmt: skip


class _Inner(registry.CPUDispatcher):  # type: ignore[misc]
    """What compiled callers see of a function."""

    _compiler: Any

    def __init__(self, function: Any, **more: Any) -> None:
        super().__init__(function, **more)
        usual = self._compiler
        self._compiler = _Lowered(
            function, self.targetdescr, self.targetoptions, self.locals,
            usual.pipeline_class,
        )  # fmt: skip

    def compile(self, sig: Any) -> Any:
        """Lower the function for a signature, unless that was done."""
        with self._compiling_counter:
            args, return_type = dispatching.sigutils.normalize_signature(sig)
            if tuple(args) not in self.overloads:
                made = self._compiler.compile(args, return_type)
                # Callers find it by its entry point, which may be any object.
                made = made._replace(entry_point=made.library)
                self.targetctx.insert_user_function(
                    made.library, made.fndesc, [made.library]
                )
                self.overloads[tuple(args)] = made


class Inlining(registry.CPUDispatcher):  # type: ignore[misc]
    """Numba's dispatcher for Python's calls; compiled callers get the other kind."""

    def __init__(self, function: Any, **more: Any) -> None:
        super().__init__(function, **more)
        self._inner = _Inner(function, **more)

    @property
    def _numba_type_(self) -> Any:
        return types.Dispatcher(self._inner)
