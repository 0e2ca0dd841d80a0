"""The manager over HTTP: one API for the city. Litestar makes the OpenAPI document from the types."""

import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import Litestar, MediaType, Request, Router, delete, get, post, put
from litestar.connection import ASGIConnection
from litestar.datastructures import State as AppState
from litestar.di import Provide
from litestar.exceptions import HTTPException, NotAuthorizedException, NotFoundException, SerializationException
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import Parameter
from litestar.response import Response, Stream

from metromq import __version__
from metromq.control.city_status import ask_city
from metromq.control.core import (
    ActionPlan,
    Device,
    DeviceGone,
    DeviceSet,
    ProxyGone,
    ProxyPlace,
    ProxySeen,
    ServiceSpec,
    delegation_problem,
    delegation_steps,
    entry_plan,
    is_address,
    is_name,
    is_plain,
    place_entry,
    removal_steps,
    standing,
    undo_steps,
)
from metromq.control.manager.api_types import (
    DelegationBody,
    DeviceAnswer,
    DeviceBody,
    LimitsBody,
    LoopAnswer,
    PlanAnswer,
    ProxyAnswer,
    ProxyBody,
    RecordAnswer,
    Removed,
    ServiceAnswer,
    ServiceBody,
    TableAnswer,
    TopicAnswer,
    TopicsAnswer,
    dry_answer,
    plan_answer,
    record_answer,
)
from metromq.control.manager.loads import load_of
from metromq.control.manager.manager import Manager
from metromq.control.manager.proxies import ProxyTable
from metromq.control.manager.tokens import Tokens
from metromq.control.tracing import live_ask, trace
from metromq.errors import MetroError, UsageError
from metromq.federation import is_filter, to_json
from metromq.protocol.topics import validate_filter, validate_topic
from metromq.reading import read_data

MOST_WAIT_S = 300.0
MOST_RECORDS = 1000
Wait = Annotated[float, Parameter(ge=0, le=MOST_WAIT_S, description="Seconds to wait until the plan has ended.")]
Name = Annotated[str, Parameter(min_length=1, max_length=64)]


class Refused(HTTPException):
    """Asked for something that is not possible as things are."""

    status_code = 409


class Wrong(HTTPException):
    status_code = 400


def provide_manager(state: AppState) -> Manager:
    found = state["manager"]
    assert isinstance(found, Manager)
    return found


def author_of(request: Request[Any, Any, Any]) -> str:
    """Whoever has a token of their own is called so; with the manager's own one they say who they are."""
    return str(request.state["author"])


async def answer_for(manager: Manager, plan: ActionPlan, dry_run: bool, wait_s: float, author: str) -> PlanAnswer:
    if dry_run:
        return dry_answer(plan)
    number = manager.accept(plan, author)
    await manager.finished(number, wait_s)
    return plan_answer(manager.state.plans[number])


# The city.


@get("/status", summary="What runs where in the city")
async def status(manager: Manager) -> dict[str, Any]:
    return to_json(await ask_city(manager.place.city, manager.options.data))


@get("/explain", summary="The way of a message or subscription, with reasons")
async def explain(
    manager: Manager,
    topic: Annotated[str, Parameter(min_length=1, max_length=1000)],
    at: Annotated[str, Parameter(query="from", max_length=64)] = "",
) -> dict[str, Any]:
    city = manager.place.city
    try:
        (validate_filter if is_filter(topic) else validate_topic)(topic)
        start = city.broker(at).name if at else city.central
    except MetroError as error:
        raise Wrong(detail=str(error)) from error
    return dataclasses.asdict(await trace(topic, start, True, live_ask(city, manager.options.data)))


# Topics.


@get("/topics", summary="Who has which filters, and what proxies know")
async def topics(manager: Manager) -> TopicsAnswer:
    with contextlib.suppress(MetroError):  # without the central broker: as it was last
        await manager.refresh()
    central = manager.place.city.central
    decided = standing(manager.state.decisions, manager.delegated, central)
    entries = [TopicAnswer(one, who, decided[one].by) for one, who in manager.delegated.items()]
    decisions = [TopicAnswer(one, known.broker or central, known.by) for one, known in decided.items()]
    return TopicsAnswer(entries, decisions, table_answer(manager.desk.table))


@post("/topics", summary="Hand a filter to a broker, or return it", status_code=200)
async def delegate_topic(
    manager: Manager, data: DelegationBody, request: Request[Any, Any, Any], dry_run: bool = False, wait_s: Wait = 30.0
) -> PlanAnswer:
    problem = delegation_problem(data.filter, ()) if is_plain(data.filter) else "it is no filter"
    if problem:
        raise Wrong(detail=problem)
    city = manager.place.city
    if data.broker and data.broker not in city.by_name:
        raise Wrong(detail=f"there is no broker {data.broker[:64]}; there are {', '.join(city.names)}")
    author = author_of(request)
    plan = delegation_steps(data.filter, data.broker, author, await manager.surroundings(counted=False))
    return await answer_for(manager, plan, dry_run, wait_s, author)


# Proxies.


@get("/proxies", summary="Proxies that have registered")
async def proxies(manager: Manager) -> list[ProxyAnswer]:
    alive, version = manager.desk.alive(), manager.desk.table.version
    found = []
    for name, proxy in manager.state.proxies.items():
        life = manager.desk.lives.get(name)
        clients = life.clients if life is not None else 0
        found.append(
            ProxyAnswer(name, proxy.listen, name in alive, clients, life is not None and life.version == version)
        )
    return found


@put("/proxies/{name:str}", summary="A proxy registers, and waits for another table than the one it has")
async def register_proxy(manager: Manager, name: Name, data: ProxyBody, request: Request[Any, Any, Any]) -> TableAnswer:
    if not is_name(name) or not is_address(data.listen):
        raise Wrong(detail="a proxy has a name of letters and digits, and listens on HOST:PORT")
    place = ProxyPlace(name, data.listen)
    if manager.state.proxies.get(name) != place:
        manager.note(ProxySeen(place), author_of(request))
    found = await manager.desk.asked(name, data.version[:64], min(max(data.clients, 0), 1 << 31), data.wait_s)
    if not found.version:
        raise Refused(
            detail=f"there is no table yet: {manager.place.city.central}, the central broker, does not answer"
        )
    return table_answer(found)


@delete("/proxies/{name:str}", summary="A proxy is gone for good", status_code=200)
async def remove_proxy(manager: Manager, name: Name, request: Request[Any, Any, Any]) -> Removed:
    if name not in manager.state.proxies:
        raise NotFoundException(detail="there is no such proxy")
    manager.note(ProxyGone(name), author_of(request))
    manager.desk.forget(name)
    return Removed(name)


def table_answer(table: ProxyTable) -> TableAnswer:
    return TableAnswer(table.central, dict(table.filters), dict(table.edges), table.version)


# Devices.


@get("/devices", summary="Edge devices, what they carry and could")
async def devices(manager: Manager) -> list[DeviceAnswer]:
    statistics = manager.counters.statistics()
    found = []
    for device in manager.state.devices.values():
        filters = [one for one, broker in manager.delegated.items() if broker == device.broker]
        services = [name for name, state in manager.state.services.items() if state.device == device.name]
        specs = [manager.state.services[name].spec for name in services]
        found.append(
            DeviceAnswer(
                **{field.name: getattr(device, field.name) for field in dataclasses.fields(device)},
                broker_up=manager.place.is_up(device.broker),
                load_workload=load_of(statistics, filters, specs),
                services=services,
                filters=filters,
            )
        )
    return found


@put("/devices/{name:str}", summary="Add a device, or change it")
async def set_device(manager: Manager, name: Name, data: DeviceBody, request: Request[Any, Any, Any]) -> DeviceBody:
    device = Device(name, data.broker, data.capacity_workload, data.mw_per_workload, data.tunnel)
    city = manager.place.city
    problems = [f"{where}: {problem}" for where, problem in device.problems()]
    if data.broker not in city.by_name or data.broker == city.central:
        problems.append(f"broker: must be one of the city, and not the central one, {city.central}")
    if any(one.broker == data.broker and one.name != name for one in manager.state.devices.values()):
        taken = next(one.name for one in manager.state.devices.values() if one.broker == data.broker)
        problems.append(f"broker: is that of device {taken}; change that one, or remove it first")
    if problems:
        raise Wrong(detail="; ".join(problems))
    manager.note(DeviceSet(device), author_of(request))
    return data


@delete("/devices/{name:str}", summary="Forget a device that carries no service", status_code=200)
async def remove_device(manager: Manager, name: Name, request: Request[Any, Any, Any]) -> Removed:
    if name not in manager.state.devices:
        raise NotFoundException(detail="there is no such device")
    busy = [one for one, state in manager.state.services.items() if state.device == name]
    if busy or manager.state.current is not None:
        raise Refused(detail=f"{name} carries {', '.join(busy)}" if busy else "a plan is under way; try again")
    manager.note(DeviceGone(name), author_of(request))
    return Removed(name)


# Services.


@get("/services", summary="Services, and where they run")
async def services(manager: Manager) -> list[ServiceAnswer]:
    return [await _service(manager, name) for name in list(manager.state.services)]


@get("/services/{name:str}", summary="One service")
async def service(manager: Manager, name: Name) -> ServiceAnswer:
    if name not in manager.state.services:
        raise NotFoundException(detail="there is no such service")
    return await _service(manager, name)


async def _service(manager: Manager, name: str) -> ServiceAnswer:
    state = manager.state.services[name]
    running = await manager.place.runtime(state.spec).is_running(f"service-{name}")
    spec = state.spec
    return ServiceAnswer(name, state.device, spec.runtime, list(spec.topics), running, state.restarts, state.plan)


@post("/services", summary="Service entry, step by step as a plan", status_code=200)
async def add_service(
    manager: Manager, data: ServiceBody, request: Request[Any, Any, Any], dry_run: bool = False, wait_s: Wait = 60.0
) -> PlanAnswer:
    spec = read_data(ServiceSpec, dataclasses.asdict(data))
    around = await manager.surroundings()
    placed, grounds = place_entry(spec, around, time.monotonic)
    return await answer_for(manager, entry_plan(spec, placed, grounds, around), dry_run, wait_s, author_of(request))


@delete("/services/{name:str}", summary="Stop a service, and return its topics", status_code=200)
async def remove_service(
    manager: Manager, name: Name, request: Request[Any, Any, Any], dry_run: bool = False, wait_s: Wait = 60.0
) -> PlanAnswer:
    if name not in manager.state.services:
        raise NotFoundException(detail="there is no such service")
    plan = removal_steps(name, await manager.surroundings(counted=False))
    return await answer_for(manager, plan, dry_run, wait_s, author_of(request))


@get("/services/{name:str}/logs", summary="What a service prints", media_type=MediaType.TEXT)
async def service_logs(manager: Manager, name: Name, follow: bool = False) -> Stream:
    if name not in manager.state.services:
        raise NotFoundException(detail="there is no such service")
    runtime = manager.place.runtime(manager.state.services[name].spec)

    async def chunks() -> AsyncIterator[bytes]:
        async for chunk in runtime.logs(f"service-{name}", follow):
            yield chunk

    return Stream(chunks(), media_type=MediaType.TEXT)


# Plans, loop, history.


@get("/plans", summary="Plans, the newest first")
async def plans(
    manager: Manager,
    kind: Annotated[str, Parameter(max_length=16)] = "",
    limit: Annotated[int, Parameter(ge=1, le=MOST_RECORDS)] = 50,
) -> list[PlanAnswer]:
    found = [state for state in manager.state.plans.values() if kind in ("", state.plan.kind)]
    return [plan_answer(state) for state in reversed(found[-limit:])]


@get("/plans/{number:int}", summary="One plan, and how far it is")
async def plan(manager: Manager, number: int) -> PlanAnswer:
    if number not in manager.state.plans:
        raise NotFoundException(detail="there is no such plan")
    return plan_answer(manager.state.plans[number])


@post("/plans/{number:int}/undo", summary="Take back what a plan did", status_code=200)
async def undo_plan(
    manager: Manager, number: int, request: Request[Any, Any, Any], dry_run: bool = False, wait_s: Wait = 60.0
) -> PlanAnswer:
    if number not in manager.state.plans:
        raise NotFoundException(detail="there is no such plan")
    back = undo_steps(manager.state.plans[number], await manager.surroundings(counted=False))
    return await answer_for(manager, back, dry_run, wait_s, author_of(request))


@post("/loop", summary="Look at the statistics, and change what should be changed", status_code=200)
async def loop_once(
    manager: Manager,
    request: Request[Any, Any, Any],
    dry_run: bool = False,
    patient: bool = False,
    wait_s: Wait = 60.0,
) -> LoopAnswer:
    """`patient`: with the hysteresis of the schedule; else at once."""
    found = await manager.loop.look(patient, dry_run)
    proposal = found.proposal
    answer = None
    if found.plan is not None:
        answer = await answer_for(manager, found.plan, dry_run, wait_s, author_of(request))
    return LoopAnswer(
        *(list(proposal.grounds), proposal.crossing_now, proposal.crossing_then),
        *(list(found.waiting), list(found.left), answer),
    )


@get("/history", summary="The audit log: every change, the newest first")
async def history(
    manager: Manager,
    before: Annotated[int, Parameter(ge=0, description="Only records before this one; 0: the newest.")] = 0,
    limit: Annotated[int, Parameter(ge=1, le=MOST_RECORDS)] = 100,
) -> list[RecordAnswer]:
    found = [record for record in manager.records if not before or record.number < before]
    return [record_answer(record) for record in reversed(found[-limit:])]


@get("/healthz", opt={"open": True}, media_type=MediaType.TEXT, summary="Whether the manager answers")
async def healthz() -> str:
    return "ok\n"


HANDLERS = [
    *(status, explain, topics, delegate_topic),
    *(proxies, register_proxy, remove_proxy),
    *(devices, set_device, remove_device),
    *(services, service, add_service, remove_service, service_logs),
    *(plans, plan, undo_plan, loop_once, history),
]


def _refusal(request: Request[Any, Any, Any], error: MetroError) -> Response[dict[str, Any]]:
    """What we raise on purpose says what to do; a mistake of the asker, or the city is not as it should be."""
    code = 409 if not isinstance(error, UsageError) or "cannot" in str(error) else 400
    return Response({"status_code": code, "detail": str(error)}, status_code=code)


def _too_deep(request: Request[Any, Any, Any], error: RecursionError) -> Response[dict[str, Any]]:
    return Response({"status_code": 400, "detail": "the JSON is nested too deeply"}, status_code=400)


async def nothing_unknown(request: Request[Any, Any, Any]) -> None:
    """Whoever misspells `dry_run`, or puts it into the wrong place, must not have it done."""
    fields = request.route_handler.parsed_fn_signature.parameters
    known = {getattr(field.kwarg_definition, "query", None) or name for name, field in fields.items()}
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        raise Wrong(detail=f"there is no parameter {', '.join(unknown)[:200]} here")
    if "data" not in fields:
        if await request.body():
            raise Wrong(detail="this takes no body; parameters such as dry_run go into the address")
        return
    body_type = fields["data"].annotation
    if body_type is ProxyBody:  # proxies may be newer than we are
        return
    try:
        body = await request.json()
    except (SerializationException, RecursionError):
        return  # whoever reads it next says what is wrong
    for where, part, of in (("", body, body_type), ("limits.", _part(body, "limits"), LimitsBody)):
        names = [field.name for field in dataclasses.fields(of)]
        unknown = sorted(f"{where}{name}" for name in part if name not in names) if isinstance(part, dict) else []
        if unknown:
            raise Wrong(detail=f"{', '.join(unknown)[:200]}: is no field; the fields here are {', '.join(names)}")


def _part(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def make_app(manager: Manager, token: str) -> Litestar:
    tokens = Tokens(manager.place.directory, token)

    def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        name = tokens.name_of(given) if scheme == "Bearer" else None
        if name is None:
            raise NotAuthorizedException(detail="send the manager's token: Authorization: Bearer TOKEN")
        said = connection.headers.get("x-author", "")[:64]
        connection.state["author"] = name or (said if said and said.isprintable() else tokens.owner())

    document = OpenAPIConfig(
        title="MetroMQ manager",
        version=__version__,
        description="Topics, services, devices, proxies and brokers of a city with delegation.",
        security=[{"token": []}],
        components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
        path="/schema",
    )
    router = Router("/v1", route_handlers=HANDLERS, guards=[guard], before_request=nothing_unknown)
    return Litestar(
        [router, healthz],
        openapi_config=document,
        exception_handlers={MetroError: _refusal, RecursionError: _too_deep},
        dependencies={"manager": Provide(provide_manager, sync_to_thread=False)},
        state=AppState({"manager": manager}),
        debug=False,
        logging_config=None,
    )
