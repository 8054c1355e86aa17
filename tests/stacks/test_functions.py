"""What all functions have in common, in whichever stack they are."""

from __future__ import annotations

import pytest

from tests.stacks.synthesis import Stacks

FUNCTIONS = {
    "Queue": "Queue/ChargeOrder",
    "Events": "Events/SendReceipt",
    "Stream": "Stream/IndexOrder",
}

FOLDERS = {"Queue": "charge_order", "Events": "send_receipt", "Stream": "index_order"}


@pytest.mark.parametrize(("stack", "path"), FUNCTIONS.items())
class TestEachFunction:
    def test_runs_one_runtime_on_arm(self, sandbox: Stacks, stack: str, path: str) -> None:
        function = sandbox[stack].at(f"{path}/Function")
        assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
        layer = sandbox[stack].at(f"{path}/Dependencies")
        assert (layer["CompatibleRuntimes"], layer["CompatibleArchitectures"]) == (["python3.13"], ["arm64"])
        assert function["Layers"] == [{"Ref": sandbox[stack].id_at(f"{path}/Dependencies")}]

    def test_names_its_handler_by_its_folder(self, sandbox: Stacks, stack: str, path: str) -> None:
        assert sandbox[stack].at(f"{path}/Function")["Handler"] == f"{FOLDERS[stack]}.handler.handler"

    def test_reserves_no_concurrency(self, sandbox: Stacks, stack: str, path: str) -> None:
        assert "ReservedConcurrentExecutions" not in sandbox[stack].at(f"{path}/Function")

    def test_waits_for_its_grants(self, sandbox: Stacks, stack: str, path: str) -> None:
        # Its mapping is refused when the grants are not there yet; the role itself is ordered by reference.
        function = sandbox[stack].resources[sandbox[stack].id_at(f"{path}/Function")]
        assert function["DependsOn"] == [sandbox[stack].id_at(f"{path}/Role/DefaultPolicy")]

    def test_has_no_dead_letter_queue_of_its_own(self, sandbox: Stacks, stack: str, path: str) -> None:
        # A queue or a stream never fails into it, and the asynchronous function has its destination.
        assert "DeadLetterConfig" not in sandbox[stack].at(f"{path}/Function")

    def test_never_switches_idempotency_off(self, sandbox: Stacks, stack: str, path: str) -> None:
        variables = sandbox[stack].at(f"{path}/Function")["Environment"]["Variables"]
        assert "POWERTOOLS_IDEMPOTENCY_DISABLED" not in variables
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "RetrySafe"
        assert variables["POWERTOOLS_SERVICE_NAME"] == FOLDERS[stack].replace("_", "-")

    def test_logs_to_its_own_group_for_a_limited_time(
        self, sandbox: Stacks, production: Stacks, stack: str, path: str
    ) -> None:
        function = sandbox[stack].at(f"{path}/Function")
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": sandbox[stack].id_at(f"{path}/Logs")}}
        assert sandbox[stack].at(f"{path}/Logs") == {"RetentionInDays": 7}
        assert production[stack].at(f"{path}/Logs") == {"RetentionInDays": 90}
        assert len(sandbox[stack].of_type("AWS::Logs::LogGroup")) == 1


def test_memory_size_is_a_setting(sandbox: Stacks) -> None:
    assert sandbox["Queue"].at("Queue/ChargeOrder/Function")["MemorySize"] == 256
