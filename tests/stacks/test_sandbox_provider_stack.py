"""The stand-in provider: two tables that forget, and the bindings through which functions find them."""

from __future__ import annotations

import pytest
from aws_cdk import Stack

from stacks.sandbox_provider_stack import SandboxProviderStack
from stacks.times import DAY
from tests.stacks.synthesis import Stacks, new_app


@pytest.mark.parametrize("path", ["SandboxProvider/Payments", "SandboxProvider/Mails"])
def test_tables_forget_keys_and_go_with_the_stack(sandbox: Stacks, path: str) -> None:
    template = sandbox["SandboxProvider"]
    assert template.at(path)["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}
    assert template.at(path)["DeletionProtectionEnabled"] is False
    assert template.resources[template.id_at(path)]["DeletionPolicy"] == "Delete"


def test_a_binding_names_factory_table_lifetime_and_code() -> None:
    stack = SandboxProviderStack(new_app(), "SandboxProvider", key_lifetime=DAY)
    for binding, table in ((stack.payments_binding(), stack.payments), (stack.mails_binding(), stack.mails)):
        assert binding.folders == ("sandbox_provider",)
        assert binding.environment == {
            "PROVIDER": "sandbox_provider.client:connect",
            "PROVIDER_TARGET": table.table_name,
            "PROVIDER_KEY_LIFETIME_SECONDS": "86400",
        }
    assert Stack.of(stack.payments) is stack


def test_outputs_name_both_tables(sandbox: Stacks) -> None:
    outputs = sandbox["SandboxProvider"].json["Outputs"]
    assert {name for name, output in outputs.items() if "Export" not in output} == {"PaymentsName", "MailsName"}
