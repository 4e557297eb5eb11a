"""Reward models behind servers: a number for what was said and what was answered."""

import math
from typing import Any, Literal

from assay.models.conversations import sent_messages
from assay.models.protocol import Can
from assay.models.servers.http import Refused
from assay.models.servers.served import GREETING, Connection, Served
from assay.models.servers.usage import usage_of
from assay.records import Failed, Generate, Likelihood, Loglikelihood, Request, Response


class RewardHTTP(Served):
    """A reward model of a server, by vLLM's protocols.

    `way=pooling` posts the conversation to /pooling, and the server applies its template; `way=score` posts both texts
    as a pair to /score.
    """

    name = "reward-http"
    public = "http://127.0.0.1:8000"
    endings = ("/pooling", "/v1/score", "/score", "/v1")

    def __init__(
        self, model: str, connection: Connection | None = None, *, way: Literal["pooling", "score"] = "pooling"
    ) -> None:
        super().__init__(model, connection)
        self._way = way
        self.can = Can(generate=False, loglikelihood=True, rolling=False, chat=False)

    def _identified(self, address: str | None, said: str | None) -> str:
        return f"{super()._identified(address, said)} {self._way}"

    async def generate(self, request: Generate) -> Response:  # noqa: ARG002  # it does not
        return Failed(f"{self.name} gives numbers, and no text")

    async def respond(self, request: Request) -> Response:
        if not isinstance(request, Loglikelihood):
            return Failed(f"{self.name} gives a number for an answer, and nothing else")
        answer = await self.http.post(f"/{self._way}", {"model": self.model, **self._body(request)})
        [row] = answer["data"]
        value = _number(row["data"] if self._way == "pooling" else row["score"])
        return Likelihood(value, usage=usage_of(answer)._replace(written=0, stored=0))

    def _body(self, request: Loglikelihood) -> dict[str, Any]:
        if self._way == "score":
            if not isinstance(request.context, str):
                raise Refused("/score takes two texts, and no conversation: use way=pooling")
            return {"text_1": request.context, "text_2": request.continuation}
        answered = {"role": "assistant", "content": request.continuation}
        return {"messages": [*sent_messages(request.context), answered]}

    async def _said(self, prompt: str | None = None, limit: int = 0) -> str:  # noqa: ARG002  # it says a number
        with self._told_plainly():
            found = await self.respond(Loglikelihood(GREETING, "dog"))
        return str(found.value) if isinstance(found, Likelihood) else str(found)


def _number(told: Any) -> float:
    """The one number of an answer, however many lists it is in."""
    while isinstance(told, list) and len(told) == 1:
        told = told[0]
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
        raise Refused(f"the server gives {str(told)[:60]} and not one number: it must serve a model of one label")
    return float(told)
