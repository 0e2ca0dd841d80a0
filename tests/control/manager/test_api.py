"""The API, fuzzed from its own OpenAPI document against a manager without brokers: whatever comes, never a 500."""

import asyncio
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.errors import SchemathesisError

from metromq.control import keep_city
from metromq.control.manager import Manager, ManagerOptions, api
from metromq.control.running import resolved
from metromq.federation import grid_city

EXAMPLES = int(os.environ.get("METROMQ_EXAMPLES", "8"))  # each costs a fifth of a second, for some forty strategies
TOKEN = "a token for this test"
CITY = grid_city("delegation", count=3)


class _Alone(Manager):
    """Takes its word for it that nothing is delegated, so that plans are made, and fail at the first step."""

    async def refresh(self) -> None:
        self.delegated = {}


class Served:
    """A manager with its API on an event loop of its own. Its city does not run, so no plan gets far."""

    def __init__(self, data: Path) -> None:
        self.data = data
        keep_city(data, resolved(CITY, data))
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    async def _run(self) -> None:
        manager = _Alone(CITY, ManagerOptions(self.data), tell=lambda text: None)
        await manager.open()
        config = uvicorn.Config(api.make_app(manager, TOKEN), port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
        self._ready.set()
        await serving
        await manager.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("api"))
    yield made
    made.close()


def operations(served: Served) -> list[Any]:
    document = schemathesis.openapi.from_url(f"{served.url}/schema/openapi.json")
    return [result.ok() for result in document.get_all_operations() if isinstance(result, Ok)]


def fuzz(operation: Any, mode: GenerationMode, codes: set[int]) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None, phases=(Phase.generate,))
    @given(operation.as_strategy(generation_mode=mode))
    def one(case: Case[Any]) -> None:
        if isinstance(case.query, dict) and "wait_s" in case.query and case.query["wait_s"] not in ("", None):
            case.query["wait_s"] = str(case.query["wait_s"])[:1]  # nobody waits for plans here
        if isinstance(case.body, dict) and isinstance(case.body.get("wait_s"), int | float):
            case.body["wait_s"] = 0
        if operation.label == "POST /v1/services":  # commands that the fuzzer thinks of are not to be run
            case.query = {**(case.query or {}), "dry_run": "true"}
        answer = case.call(headers={**dict(case.headers or {}), "Authorization": f"Bearer {TOKEN}"}, timeout=60)
        codes.add(answer.status_code)
        assert answer.status_code < 500, (answer.status_code, answer.text[:500])

    one()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_nothing_that_the_document_allows_or_forbids_breaks_the_manager(served: Served, mode: GenerationMode) -> None:
    codes: dict[str, set[int]] = {}
    for operation in operations(served):
        try:
            fuzz(operation, mode, codes.setdefault(operation.label, set()))
        except (Unsatisfiable, SchemathesisError):
            continue  # there is no wrong way to ask for it
    assert len(codes) >= 20
    seen = {code for found in codes.values() for code in found}
    assert seen >= ({200, 400, 404} if mode is GenerationMode.POSITIVE else {400}), codes


def test_the_fuzzer_finds_a_planted_500(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "table_answer", lambda table: 1 / 0)
    operation = next(one for one in operations(served) if one.label == "GET /v1/topics")
    with pytest.raises(AssertionError, match="500"):
        fuzz(operation, GenerationMode.POSITIVE, set())


def refusal(served: Served, method: str, path: str, body: bytes | None = None) -> str:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(served.url + path, method=method, data=body, headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 400
    return refused.value.read().decode()


def test_what_is_misspelled_or_in_the_wrong_place_is_not_done(served: Served) -> None:
    """A dry run that is asked for in a way that nobody reads would be none."""
    assert "no parameter dryrun" in refusal(served, "POST", "/v1/loop?dryrun=true")
    assert "takes no body" in refusal(served, "POST", "/v1/loop", b'{"dry_run": true}')
    assert "no parameter dry_run" in refusal(served, "PUT", "/v1/devices/d?dry_run=true", b'{"broker": "b01"}')
    service = b'{"name": "x", "topics": ["a"], "command": ["true"], "delegat": false, "limits": {"cpu": 1}}'
    assert "delegat: is no field" in refusal(served, "POST", "/v1/services?dry_run=true", service)
    assert "limits.cpu: is no field" in refusal(
        served, "POST", "/v1/services?dry_run=true", service.replace(b'"delegat": false, ', b"")
    )


def test_json_without_end_is_refused_as_any_other_nonsense(served: Served) -> None:
    assert "nested too deeply" in refusal(served, "POST", "/v1/services", b"[" * 100_000)


def test_without_the_token_nothing_is_told(served: Served) -> None:
    for operation in operations(served):
        if operation.path.startswith("/v1/"):
            path = operation.path.replace("{name}", "x").replace("{number}", "1")
            request = urllib.request.Request(
                served.url + path,
                method=operation.method.upper(),
                data=b"{}" if operation.method in ("put", "post") else None,
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            assert refused.value.code in (400, 401), operation.label
