"""The HAMi scheduler as a server: extender and webhook over HTTPS, metrics over HTTP, informers behind them.

Source: HAMi, cmd/scheduler/main.go, pkg/scheduler/routes/route.go and pkg/scheduler/scheduler.go.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from pytest_hami.simulator.certificates import ServerIdentity, loopback_identity
from pytest_hami.simulator.client import Access, Api, ApiError, Informer
from pytest_hami.simulator.hami.binding import BindArgs, Binder
from pytest_hami.simulator.hami.exposition import CollisionError
from pytest_hami.simulator.hami.recorder import Recorder
from pytest_hami.simulator.hami.scheduler import HamiScheduler, SchedulerConfig

if TYPE_CHECKING:
    from pytest_hami.simulator.hami.rules import Rules

LOG = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
BODY_LIMIT = 1 << 20
REVIEW_LIMIT = 7 << 20
PATCHES_AT_ONCE = 16
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


class HamiServer:
    """One HAMi scheduler against one API server.

    ``tick`` is the period of the register run in seconds (HAMi: 15). Ports are chosen at the first start and kept, and
    so is the certificate: kube-scheduler and the webhook configuration stay right over a restart.
    """

    def __init__(
        self, api_url: str | Access, config: SchedulerConfig, rules: Rules | None = None, *, tick: float = 15.0
    ) -> None:
        self.config = config
        self.model = HamiScheduler(config, rules)
        self._api_url = api_url
        self._rules = rules
        self._tick = tick
        self._identity: ServerIdentity = loopback_identity()
        self._ports = (0, 0)
        self._runners: list[web.AppRunner] = []
        self._informers: list[Informer] = []
        self._session: aiohttp.ClientSession | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def extender_url(self) -> str:
        """The URL prefix of the verbs ``/filter`` and ``/bind``."""
        return f"https://{LOOPBACK}:{self._ports[0]}"

    @property
    def webhook_url(self) -> str:
        """The URL of the mutating webhook."""
        return f"{self.extender_url}/webhook"

    @property
    def metrics_url(self) -> str:
        """The URL of the Prometheus metrics, plain HTTP."""
        return f"http://{LOOPBACK}:{self._ports[1]}/metrics"

    @property
    def ca_bundle(self) -> str:
        """The authority as a webhook configuration holds it: base64 of its PEM text."""
        return base64.b64encode(self._identity.authority).decode()

    @property
    def client_context(self) -> ssl.SSLContext:
        """A TLS context that trusts this server."""
        return self._identity.client_context()

    async def start(self) -> None:
        """Read the API, run one registration and serve. Raises ApiError, and OSError for a port that is taken."""
        self.model = HamiScheduler(self.config, self._rules)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=30)
        )
        self._api = Api(self._api_url, self._session)
        self._recorder = Recorder(self._api, self.config.scheduler_name)
        self._binder = Binder(self._api, self.model, self._recorder)
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        try:
            self._informers = [
                Informer(self._api, "/api/v1/nodes", self._on_node),
                Informer(self._api, "/api/v1/resourcequotas", self.model.quota_event),
                Informer(self._api, "/api/v1/pods", self.model.pod_event),
            ]
            for informer in self._informers:
                await informer.start()
            await self.register()
            self._task = asyncio.create_task(self._keep_registering(), name="hami register")
            extender = await self._serve(self._extender(), self._ports[0], self._identity.server_context())
            self._ports = (extender, self._ports[1])
            self._ports = (extender, await self._serve(self._metrics_app(), self._ports[1], None))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop serving, write the last events and end the watches."""
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        informers, self._informers = self._informers, []
        for informer in informers:
            await informer.stop()
        session, self._session = self._session, None
        if session is not None:
            await self._recorder.drain()
            await session.close()

    async def restart(self, config: SchedulerConfig | None = None) -> None:
        """Forget everything, read the API again and serve on the same ports, with another configuration if given."""
        await self.stop()
        self.config = config or self.config
        await self.start()

    async def _serve(self, app: web.Application, port: int, context: ssl.SSLContext | None) -> int:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, LOOPBACK, port, ssl_context=context).start()
        return int(runner.addresses[0][1])

    def _extender(self) -> web.Application:
        app = web.Application(client_max_size=REVIEW_LIMIT)
        app.add_routes(
            [
                web.post("/filter", self._filter),
                web.post("/bind", self._bind),
                web.post("/webhook", self._webhook),
                web.get("/healthz", _healthy),
                web.get("/readyz", _healthy),
            ]
        )
        return app

    def _metrics_app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics)])
        return app

    def _on_node(self, kind: str, node: dict[str, Any]) -> None:
        if self.model.node_event(kind, node):
            self._wake.set()

    async def _keep_registering(self) -> None:
        while True:
            # Not wait_for: that of Python 3.11 can swallow the cancellation which ends this task.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tick):
                    await self._wake.wait()
            try:
                await self.register()
            except Exception:
                LOG.exception("hami-scheduler: a register run failed")

    async def register(self) -> None:
        """Look at all nodes now, as the tick does."""
        # Cleared first: a node that arrives while the patches are under way must cause another run.
        self._wake.clear()
        patches = self.model.register()
        self._synced.set()
        slots = asyncio.Semaphore(PATCHES_AT_ONCE)

        async def write(node: str, annotations: dict[str, str | None]) -> None:
            async with slots:
                # The node may be gone by now; anything else is tried again by the next run.
                with contextlib.suppress(ApiError):
                    await self._api.merge_patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})

        await asyncio.gather(*(write(patch.node, patch.annotations) for patch in patches))

    async def _filter(self, request: web.Request) -> web.StreamResponse:
        args, error = await _arguments(request)
        if error:
            return _filter_answer(error=error)
        pod = args.get("pod")
        if not isinstance(pod, dict):
            return _filter_answer(error="extender args missing pod")
        await self._synced.wait()
        names, nodes = args.get("nodenames"), args.get("nodes")
        simulates = isinstance(nodes, dict) and self.model.rules.answers_about_nodes()
        if names is None and not simulates:
            return self._filter_nothing(request, pod)
        if isinstance(nodes, dict) and simulates:
            return self._simulate(pod, nodes.get("items") or [])
        result = self.model.filter(pod, list(names or ()))
        if result.patch is not None:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            try:
                await self._api.merge_patch(path, result.patch)
            except ApiError as failure:
                self.model.rollback(str(metadata.get("uid", "")))
                await self._recorder.record(pod, "Warning", "FilteringFailed", failure.message)
                return _filter_answer(error=failure.message)
        for event in result.events:
            await self._recorder.record(pod, event.type, event.reason, event.message)
        return _filter_answer(
            None if result.node_names is None else list(result.node_names), result.failed or None, error=result.error
        )

    def _filter_nothing(self, request: web.Request, pod: dict[str, Any]) -> web.StreamResponse:
        if not self.model.asks(pod):
            return _filter_answer()
        rules, uid = self.model.rules, str((pod.get("metadata") or {}).get("uid", ""))
        if rules.filter_without_nodes_releases():
            self.model.rollback(uid)
        answer = rules.filter_without_nodes()
        if answer:
            return _filter_answer(error=answer)
        # The caller sees a connection without an answer.
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _simulate(self, pod: dict[str, Any], nodes: list[dict[str, Any]]) -> web.StreamResponse:
        result = self.model.filter_nodes(pod, nodes)
        chosen = None
        if result.node_names is not None:
            items = [node for node in nodes if node["metadata"]["name"] in result.node_names]
            chosen = {"metadata": {}, "items": items}
        return _filter_answer(None, result.failed or None, nodes=chosen, error=result.error)

    async def _bind(self, request: web.Request) -> web.Response:
        args, error = await _arguments(request)
        if not error:
            fields = (str(args.get(key, "")) for key in ("podname", "podnamespace", "poduid", "node"))
            error = await self._binder.bind(BindArgs(*fields))
        return _json({"Error": error})

    async def _webhook(self, request: web.Request) -> web.Response:
        try:
            review = json.loads(await request.read())
            asked = review["request"]
            pod = dict(asked["object"])
        except (ValueError, KeyError, TypeError) as error:
            status = {"metadata": {}, "message": f"cannot decode the review: {error}", "code": 400}
            return _json({"response": {"uid": "", "allowed": False, "status": status}})
        admission = self.model.admit(pod, str(asked.get("namespace", "")))
        status = {"metadata": {}, "code": admission.code}
        if admission.message:
            status["message"] = admission.message
        if admission.reason:
            status["reason"] = admission.reason
        response = {"uid": asked.get("uid", ""), "allowed": admission.allowed, "status": status}
        if admission.patch:
            response["patch"] = base64.b64encode(json.dumps(admission.patch).encode()).decode()
            response["patchType"] = "JSONPatch"
        return _json(
            {
                "kind": "AdmissionReview",
                "apiVersion": review.get("apiVersion", "admission.k8s.io/v1beta1"),
                "response": response,
            }
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        try:
            text = self.model.metrics()
        except CollisionError as error:
            # A card that is registered twice breaks the whole page in HAMi as well.
            return web.Response(status=500, text=f"An error has occurred while serving metrics:\n\n{error}\n")
        return web.Response(body=text.encode(), headers={"Content-Type": METRICS_TYPE})


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response()


async def _arguments(request: web.Request) -> tuple[Mapping[str, Any], str]:
    body = await request.read()
    if len(body) > BODY_LIMIT:
        return {}, "unexpected EOF"
    if not body.strip():
        return {}, "EOF"
    try:
        found = json.loads(body)
    except ValueError as error:
        return {}, f"invalid JSON: {error}"
    if not isinstance(found, dict):
        return {}, f"json: cannot unmarshal {type(found).__name__} into Go value of type v1.ExtenderArgs"
    # Go matches the names of fields without regard to case.
    return {key.lower(): value for key, value in found.items()}, ""


def _filter_answer(
    names: list[str] | None = None,
    failed: Mapping[str, str] | None = None,
    *,
    nodes: Mapping[str, Any] | None = None,
    error: str = "",
) -> web.Response:
    return _json(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": None,
            "Error": error,
        }
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _json(value: object) -> web.Response:
    return web.json_response(value, dumps=_compact)
