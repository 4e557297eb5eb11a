
from sygra.core.graph.functions.node_processor import NodePostProcessorWithState
from sygra.core.graph.sygra_message import SygraMessage
from tasks.eval.utils import parse_response_as_json


class GenerateAnswerPostProcessor(NodePostProcessorWithState):
    def apply(self, resp: SygraMessage, state):
        found = parse_response_as_json(resp.message.content) or {}
        state["predicted_answer"] = found.get("predicted_answer", "")
        return state


class GenerateTopicPostProcessor(NodePostProcessorWithState):
    def apply(self, resp: SygraMessage, state):
        found = parse_response_as_json(resp.message.content) or {}
        state["predicted_topic"] = found.get("predicted_topic", "")
        return state
