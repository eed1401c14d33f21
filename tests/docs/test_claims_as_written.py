"""What counts as a claim, in each form it can be written in: planted alone, it is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from scripts.documentation_claims.plain import plain
from scripts.documentation_claims.quantities import quantities_in

TIMES = [
    "12.5 ms", "0.04 µs", "5 s", "5 seconds", "3 minutes", "2 h", "5 msec", "5 mins",
    "5 hrs", "5 usec", "5 days", "1m20s", "1 h 5 min", "0:01:20", "1.5e3 ms", "1,000 ms",
    "1 500 ms", "5\u2009ms", "5\u202fms", "5\u200b ms", "5&nbsp;ms", "5-ms", "ten milliseconds",
    "a latency (ms): 5", "5 Milliseconds",
    "5 milli-seconds", "10\u207b\u00b3 s", "1.7 \u00d7 10^-3 s", "5 (ms)", "5 [ms]", "5, in ms",
    "1\u00bd s", "5_000 ns", "\uff15\uff4d\uff53", "5 \u33b3",
]  # fmt: skip
RATES = [
    "120 tokens/s", "120 tokens per second", "120 tokens a second", "3.2 GB/s", "30 FPS",
    "5 QPS", "120 tps", "10 k tokens/s", "500 requests/sec", "5 TOPS", "790 TFLOPS", "5 kHz",
    "2 million tokens per minute", "5 /s", "5 per second", "120 output tokens/s",
    "120 output tokens per second", "tokens/s: 120",
    "5 tokens-per-second", "5 tok\u00b7s\u207b\u00b9",
]  # fmt: skip
PERCENTS = [
    "40 %", "40%", "-40 %", "40 percent", "40 per cent", "5 pct", "5 percentage points",
    "five percent", "12 basis points", "5 \u2030",
]  # fmt: skip
FACTORS = [
    "3.2\u00d7", "3.2 \u00d7", "3.2x", "3.5X", "3 times faster", "3 times as fast",
    "\u00d72 faster", "x2 faster", "faster \u00d7 1.2", "1.2 x faster", "3.5-fold", "tenfold",
    "faster by a factor of 2.5", "a speedup of 4", "a speed-up of 4", "3 times the speed",
    "2.5 times its throughput", "twice as fast", "twice the speed", "five times faster",
    "half the time", "half as fast", "1/3 of the time", "it is \u00d72 on two cores", "5&times;",
    "a ratio of 1.3", "2\u20133 times faster",
    "a factor of two faster", "faster by a factor of two", "a 4 times speed-up",
    "half onnxruntime's time", "3 times that of others", "twice their throughput",
    "halving latency", "it doubles their speed", "an order of magnitude faster",
    "2\u00bd times faster", "twenty-five times faster", "one-third of the time",
]  # fmt: skip
MARKED_UP = [
    "**5** ms", "**5 ms**", "_5 ms_", "*5* *ms*", "~~5~~ ms", "`5` ms", "`5 ms`", "`5` `ms`",
    "5 <b>ms</b>", "<p>5 ms</p>", "[5](https://example.org) ms", "[5 ms][page]", "5\\ ms",
    "$5$ ms", "==5== ms", "5\\\nms",
    "5 <!-- about --> ms", "**3**\u00d7 faster",
]  # fmt: skip


@pytest.mark.parametrize("claim", TIMES + RATES + PERCENTS + FACTORS + MARKED_UP)
def test_a_claim_alone_is_refused_however_it_is_written(project, claim):
    found = project(f"# Title\n\nIt runs, and\nthis is {claim}, we say.")
    assert found
    assert all(problem.startswith("docs/page.md:4: ") for problem in found)
    assert all("cites no record" in problem for problem in found)


@pytest.mark.parametrize("claim", TIMES + RATES + PERCENTS + FACTORS + MARKED_UP)
def test_the_same_claim_is_let_pass_where_it_is_marked(project, claim):
    assert project(f"It runs, and this is {claim} (estimate), we say.") == []


@pytest.mark.parametrize(
    "text",
    [
        "It takes 5\nms on two cores.",
        "- It takes 5\n  ms on two cores.",
        "> It takes 5\n> ms on two cores.",
        "It is 3 times\nfaster.",
        "It is 3\ntimes as fast.",
        "Twice\nas fast.",
        "It makes 120 tokens\nper second.",
        "It takes **5**\n_ms_ on two cores.",
    ],
)
def test_a_line_break_parts_no_number_from_its_unit(project, text):
    (problem,) = project(text)
    assert problem.startswith("docs/page.md:1: ")


TABLES = {
    "outer pipes": "| op | ms |\n|---|---|\n| a | 5 |",
    "no outer pipes": "op | ms\n---|---\na | 5",
    "no outer pipes, below text": "These:\nop | ms\n:-- | --:\na | 5",
    "HTML": "<table><tr><th>op</th><th>ms</th></tr><tr><td>a</td><td>5</td></tr></table>",
    "HTML in lines": "<table>\n<tr><th>op<th>ms\n\n<tr><td>a<td>5\n</table>",
    "unit in the first column": "| metric | value |\n|---|---|\n| latency, ms | 5 |",
    "unit as the label": "| metric | value |\n|---|---|\n| tokens/s | 5 |",
    "unit in the caption": "Milliseconds for each:\n\n| op | cpu |\n|---|---|\n| a | 5 |",
    "unit within the caption": "Times in µs:\n\n| op | cpu |\n|---|---|\n| a | 5 |",
    "unit in the cell": "| op | time |\n|---|---|\n| a | 5 ms |",
    "unit in a column": "| op | unit | value |\n|---|---|---|\n| a | ms | 5 |",
    "HTML behind text": "See <table><tr><th>ms</th></tr><tr><td>5</td></tr></table>",
    "in a quotation": "> | op | ms |\n> |---|---|\n> | a | 5 |",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_a_number_in_a_table_takes_the_unit_that_the_table_gives(project, text):
    (problem,) = project(text)
    assert "'5 " in problem
    assert project(text.replace("5", "none")) == []
    assert project(text.replace("5", "5 (estimate)")) == []


def test_a_number_in_a_cell_is_no_less_a_claim_beside_one_of_another_kind(project):
    found = project("| op | ms |\n|---|---|\n| a | 5 (2x, 40 %) |")
    assert [problem.split(" cites")[0] for problem in found] == [
        "docs/page.md:3: '5 (ms)'", "docs/page.md:3: '2x'", "docs/page.md:3: '40 %'"
    ]  # fmt: skip
    (own,) = project("| op | time (s) |\n|---|---|\n| a | 5 ms, of 2 |")
    assert "'5 ms'" in own


@pytest.mark.parametrize("text", ["|---|---|", "<table></table>", "|  |  |\n|---|---|"])
def test_an_empty_table_claims_nothing(project, text):
    assert project(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Fast. <!--\n\nIt takes 5 ms.\n\nMore.",
        "Fast <!-- a\n\nIt takes 5 ms -->.",
        "```x``` is code, and it takes 5 ms.\n\nMore.",
        "It is a <m and takes 5 ms, k> 2.",
        "<!-- a\n\nb --> It takes 5 ms.",
        "```sh\nls\n```\nIt takes 5 ms.",
        "A `b <!-- c` takes 5 ms -->.",
        "Text\n\n        ```\nand it takes 5 ms.",
        "> ```\n> ls\n\nIt takes 5 ms.",
        "- ```\n  ls\n\nIt takes 5 ms.",
        "- item\n\n  ```\n  ls\n\nIt takes 5 ms.",
        "```\n> ```\n```\nIt takes 5 ms.",
        "```\nls\n`````\nIt takes 5 ms.",
        "~~~ a`b\nls\n~~~\nIt takes 5 ms.",
        "<!--\n```\n-->\nIt takes 5 ms.",
        "<div>It takes 5 ms <table><tr><td>a</td></tr></table></div>",
        "<table><caption>It takes 5 ms</caption><tr><td>a</td></tr></table>",
    ],
)
def test_only_what_no_reader_sees_is_left_out(project, text):
    (problem,) = project(text)
    assert "'5 ms'" in problem


@pytest.mark.parametrize(
    "heading",
    [
        "Seconds", "milliseconds", "speedup", "Speed-up", "times faster", "latency (msec)",
        "Time [ms]", "**µs**", "tokens/s", "tokens per second", "GB/s", "%", "share, percent",
        "\u00d7", "x faster", "ratio of medians", "time, s", "FPS", "`ms`", "wait (min)",
    ],
)  # fmt: skip
def test_a_heading_gives_its_column_a_unit(project, heading):
    (problem,) = project(f"| op | {heading} |\n|---|---|\n| a | 5 |")
    assert problem.startswith("docs/page.md:3: '5 (")
    assert project(f"| op | {heading} |\n|---|---|\n| a | none |") == []


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nsleep 5 s  # 40 % of it\n```",
        "   ~~~~text\n5 ms\n~~~\n6 ms\n~~~~",
        "```{code-block} sh\nsleep 5 s\n```",
        "- item\n\n  ```sh\n  sleep 5 s\n\n  sleep 6 s\n  ```\n\n1. ```sh\n   sleep 5 s\n   ```",
        "> ```sh\n> sleep 5 s\n> ```",
        "- a\n  - b\n\n    ```sh\n    sleep 5 s\n    ```\n",
        "```\nls\n``` sh\nsleep 5 s\n```",
        "````{note}\n```sh\nsleep 5 s\n```\n````",
        "The command `timeout 5 s` is code, and so is ``a ` 5 s``.",
        "Files of 2 GiB, opset 21, version 1.0.3, Python 3.11, 4-bit, 170 operators.",
        "A 3x3 kernel, 3 \u00d7 3, 2x2 windows, int64 s, `x`, issue #5 s, M \u00d7 4, 4 \u00d7 N.",
        "In the 1990s. [a link](https://example.org/5%20s).",
        "<!-- 5 ms, and\n\n6 ms -->",
        "| min | h | node's | nodes | M \u00d7 N |\n|---|---|---|---|---|\n| 5 | 5 | 5 | 5 | 5 |",
        "It is planned twice, one node at a time, two or three times over.",
        "On 2026-11-30 08:36:10 UTC, of 3 of 4, the 99th percentile, us 5.",
        "Two `Min`, 2 Min and 3 H, kernel(s) in turn.",
        "One node a second time, half of the nodes, a third provider.",
    ],
)
def test_what_says_nothing_about_speed_is_no_claim(project, text):
    assert project(text) == []


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("5 to 7 ms", ["0.005", "0.007"]),
        ("5\u20137 ms", ["0.005", "0.007"]),
        ("between 5 and 7 ms", ["0.005", "0.007"]),
        ("2, 4, 8 or 16 %", ["2", "4", "8", "16"]),
        ("-12.5 ms, \u22123 %", ["-0.0125", "-3"]),
        ("1m20s and 1 h 5 min", ["80", "3900"]),
        ("2 k tokens/s, 3 GB/s, 6 MHz", ["2000", "3000000000", "6000000"]),
        ("60 requests per minute", ["1"]),
        ("twice as fast, tenfold", ["2", "10"]),
        (
            "twenty-five times faster, 2\u00bd times less, halves the time",
            ["25", "2.5", "0.5"],
        ),
        (
            "-10\u207b\u00b3 s, 1.5 \u00d7 10^2 s, 2x10\u00b2 s",
            ["-0.001", "150", "200"],
        ),
        ("5'000 ns, 5_000 ns, 12 bps, 50 basis points", ["5e-6", "5e-6", "12", "0.5"]),
        ("1,000.5 us; 1e-3 s; .5 min", ["0.0010005", "0.001", "30"]),
        ("faster \u00d7 1.2 or x2 faster, a speedup of 4", ["1.2", "2", "4"]),
    ],
)
def test_a_quantity_has_the_size_that_is_written(text, sizes):
    found = [quantity.size for quantity in quantities_in(text)]
    assert len(found) == len(sizes)
    for size, right in zip(found, map(Decimal, sizes), strict=True):
        assert abs(size - right) <= abs(right) * Decimal("1e-20")


def test_plain_text_keeps_every_line_break():
    text = "a `b\nc` <!-- d\ne\n--> **f\ng** [h\ni](j\n) (estimate:\nk) l"
    assert plain(text).count("\n") == text.count("\n")
    assert plain("see **a_b** and _c_, [d](e), `f g`") == "see a_b and c, d, \ufffc"
