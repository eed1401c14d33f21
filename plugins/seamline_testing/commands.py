"""``seamline conform``: hold a provider to the kit, or compare two reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamline.hookspecs import hookimpl
from seamline_testing.compare_command import Plugins

if TYPE_CHECKING:
    from seamline_testing.conforming import Plan
    from seamline_testing.report import Report
    from seamline_testing.results import Result
    from seamline_testing.subject import Subject

__all__ = ["CONTRACT_VERSION", "conform", "seamline_commands"]

CONTRACT_VERSION = 1
_SHOWN = 20  #: failures that the summary names


# Which checks are run, and of what.
Name = Annotated[str, typer.Argument(help="A provider, NAME or NAME:OPTION=VALUE,...")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer checks of each kind.")]
Groups = Annotated[
    list[str] | None, typer.Option(help="A group of checks; repeatable.")
]
Only = Annotated[str, typer.Option(help="Run checks whose id holds this.")]
FromModel = Annotated[
    Path | None, typer.Option(help="Take the nodes of this model as cases.")
]
RequireDevice = Annotated[
    str, typer.Option(help="Fail where it does not work on this device.")
]
Jobs = Annotated[int, typer.Option(help="Checks that run at a time.")]
Deadline = Annotated[float, typer.Option(help="Seconds until a check counts as hung.")]
# What becomes of the report.
Written = Annotated[
    Path | None, typer.Option(help="Write the report; Markdown if it ends in .md.")
]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print the report as Markdown.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Reports = Annotated[
    tuple[Path, Path] | None,
    typer.Option(help="Compare two reports; status 1 if the second is worse."),
]


@hookimpl
def seamline_commands(app: typer.Typer) -> None:
    """Add ``seamline conform``, ``compare`` and ``new-provider``."""
    from seamline_testing.compare_command import compare
    from seamline_testing.scaffold_command import new_provider

    app.command("conform")(conform)
    app.command("compare")(compare)
    app.command("new-provider")(new_provider)


def conform(
    name: Name = "",
    *,
    quick: Quick = False,
    group: Groups = None,
    only: Only = "",
    from_model: FromModel = None,
    require_device: RequireDevice = "",
    report: Written = None,
    markdown: Markdown = False,
    as_json: Json = False,
    diff: Reports = None,
    plugin: Plugins = None,
    jobs: Jobs = 2,
    deadline: Deadline = 120.0,
) -> None:
    """Hold a provider to the conformance kit; status 1 where it falls short."""
    from seamline_testing.conforming import Plan, known_groups, write_report

    if diff is not None:
        _compare(*diff)
        return
    groups = known_groups(group or ())
    plan = Plan(quick, groups, only, from_model, require_device, max(1, jobs), deadline)
    made = _run(_subject(name, plugin or []), plan)
    if report is not None:
        write_report(made, report)
    _print(made, markdown=markdown, as_json=as_json)
    if not made.holds:
        raise typer.Exit(1)


def _subject(text: str, plugins: list[str]) -> Subject:
    from seamline.errors import SeamlineError
    from seamline.samples import parse_pairs
    from seamline_testing.subject import Subject

    name, colon, options = text.partition(":")
    if not name:
        raise SeamlineError("name a provider: seamline conform NAME")
    given = parse_pairs(options.split(","), f"provider {name}") if colon else {}
    return Subject(name, given, tuple(plugins))


def _run(subject: Subject, plan: Plan) -> Report:
    from seamline_testing.conforming import conform

    with _progress(subject.provider) as (began, heard):
        return conform(subject, plan, began, heard)


@contextmanager
def _progress(provider: str) -> Iterator[tuple[Any, Any]]:
    """Show how far it is, on standard error, where a person watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed(),
        TextColumn("{task.fields[failures]}"),
    )  # fmt: skip
    failures = 0
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"listing checks of {provider}", total=None, failures="")

        def began(total: int) -> None:
            bar.update(task, total=total, description=provider)

        def heard(result: Result) -> None:
            nonlocal failures
            failures += result.finding.outcome.is_failure
            bar.update(
                task, advance=1, failures=f"{failures} failing" if failures else ""
            )

        yield began, heard


def _print(report: Report, *, markdown: bool, as_json: bool) -> None:
    from seamline_testing.report_markdown import to_markdown

    if as_json:
        typer.echo(report.to_json(), nl=False)
    elif markdown:
        typer.echo(to_markdown(report), nl=False)
    else:
        _summary(report)


def _summary(report: Report) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from seamline_testing.report_markdown import WORDS, by_group
    from seamline_testing.results import Outcome

    console = Console()
    title = f"{report.provider}, {report.form} form, {report.seconds:.0f} s"
    table = Table(title=title, box=box.SIMPLE, padding=0)
    table.add_column("group", no_wrap=True)
    for outcome in Outcome:
        table.add_column(WORDS[outcome], justify="right")
    for name, counts in by_group(report.results).items():
        table.add_row(name, *(str(counts.get(o, 0)) for o in Outcome))
    table.add_section()
    table.add_row("all", *map(str, report.counts.values()))
    console.print(table)
    for result in report.failures[:_SHOWN]:
        finding = result.finding
        # a fault of the kit is a traceback, whose last line says what
        last = finding.said.strip().splitlines()[-1] if finding.said else ""
        said = f"{finding.outcome} {result.id}: {last}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
    if len(report.failures) > _SHOWN:
        console.print(f"... and {len(report.failures) - _SHOWN} more; see --report")
    for complaint in report.complaints:
        console.print(complaint, markup=False, highlight=False, soft_wrap=True)
    passed, total = report.counts[Outcome.PASS], len(report.results)
    console.print(
        f"score {report.score:.1%}: {passed} of {total} pass", highlight=False
    )


def _compare(before: Path, after: Path) -> None:
    from seamline_testing.report import load_report
    from seamline_testing.report_diff import compare_reports

    found = compare_reports(load_report(before), load_report(after))
    typer.echo("\n".join(found.lines) if found.lines else "no difference")
    if found.worse:
        raise typer.Exit(1)
