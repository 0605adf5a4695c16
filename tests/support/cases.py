"""`each_case`: one test of many quick cases, each of which would be too small a test."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest


def each_case(names: str | Sequence[str], cases: Iterable[Any]) -> Any:
    """Make a test run all `cases`, like `pytest.mark.parametrize`, but within one test.

    Collecting, starting and reporting a test takes some milliseconds in each of the processes that
    run tests. A failure names the case. If a case fails, the other cases are still run. Fixtures
    are shared by all cases.
    """
    wanted = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    found = [dict(zip(wanted, _values(case, len(wanted)), strict=True)) for case in cases]
    assert found, "there are no cases"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            errors: list[Exception] = []
            for case in found:
                with _kept(errors, case):
                    test(**fixtures, **case)
            _raise(errors, len(found))

        @functools.wraps(test)
        async def run_async(**fixtures: Any) -> None:
            errors: list[Exception] = []
            for case in found:
                with _kept(errors, case):
                    await test(**fixtures, **case)
            _raise(errors, len(found))

        chosen: Callable[..., Any] = run_async if inspect.iscoroutinefunction(test) else run
        parameters = inspect.signature(test).parameters.values()
        rest = [one for one in parameters if one.name not in wanted]
        chosen.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        return chosen

    return decorate


@contextmanager
def _kept(errors: list[Exception], case: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  raised by `_raise`
        error.add_note("case: " + ", ".join(f"{n}={v!r}" for n, v in case.items()))
        errors.append(error)


def _raise(errors: list[Exception], count: int) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {count} cases", errors)


def _values(case: Any, count: int) -> tuple[Any, ...]:
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case cannot have marks"
        return tuple(case.values)
    return (case,) if count == 1 else tuple(case)
