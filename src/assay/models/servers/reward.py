"""Reward models behind servers: a number for a conversation and its answer."""

from typing import Literal

from assay.models.conversations import sent_messages
from assay.models.protocol import Can, PermanentError
from assay.models.servers.reading import name_of, number_of, refuse_error, usage_of
from assay.models.servers.server_model import GREETING, Connection, ServerModel
from assay.records import JSON, Failed, Generate, Likelihood, Loglikelihood, Request, Response


class RewardHTTP(ServerModel):
    """A reward model behind a server, by vLLM's protocols.

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

    def _identity_with(self, reply: str | None) -> str:
        return f"{super()._identity_with(reply)} {self._way}"

    async def generate(self, request: Generate) -> Response:  # noqa: ARG002  # it cannot
        return Failed(f"{self.name} cannot generate text")

    async def respond(self, request: Request) -> Response:
        if not isinstance(request, Loglikelihood):
            return Failed(f"{self.name} scores answers only")
        answer = await self.http.post(f"/{self._way}", {"model": self.model, **self._body(request)})
        refuse_error(answer)
        [row] = answer["data"]
        value = number_of(row["data"] if self._way == "pooling" else row["score"])
        used = usage_of(answer)._replace(written=0, stored=0)
        return Likelihood(value, usage=used, model=name_of(answer))

    def _body(self, request: Loglikelihood) -> dict[str, JSON]:
        if self._way == "score":
            if not isinstance(request.context, str):
                raise PermanentError("/score takes two texts, not a conversation: use way=pooling")
            return {"text_1": request.context, "text_2": request.continuation}
        answered = {"role": "assistant", "content": request.continuation}
        return {"messages": [*sent_messages(request.context), answered]}

    async def _probe_reply(self) -> str:
        """Return the reward of a word: the model writes none."""
        with self._protocol_errors():
            reply = await self.respond(Loglikelihood(GREETING, "dog"))
        return str(reply.value) if isinstance(reply, Likelihood) else str(reply)
