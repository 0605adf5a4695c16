"""`each_case`: one test of many quick cases, each of which would be too small a test."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each_case(names: str | Sequence[str], cases: Iterable[Any]) -> Any:
    """Make a test run all `cases`, like `pytest.mark.parametrize`, but within one test.

    Collecting, starting and reporting a test takes some milliseconds in each of the processes that
    run tests. A failure names the case. If a case fails, the other cases are still run. Fixtures
    are shared by all cases.
    """
    wanted = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    found = [_values(case, len(wanted)) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            errors = []
            for values in found:
                case = dict(zip(wanted, values, strict=True))
                try:
                    test(**fixtures, **case)
                except Exception as error:  # noqa: BLE001  raised below
                    error.add_note("case: " + ", ".join(f"{n}={v!r}" for n, v in case.items()))
                    errors.append(error)
            if len(errors) == 1:
                raise errors[0]
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(found)} cases", errors)

        parameters = inspect.signature(test).parameters.values()
        rest = [one for one in parameters if one.name not in wanted]
        run.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        assert found, "there are no cases"
        return run

    return decorate


def _values(case: Any, count: int) -> tuple[Any, ...]:
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case cannot have marks"
        return tuple(case.values)
    return (case,) if count == 1 else tuple(case)
