"""A lab that plays Lambda's retry rules against the handlers and the template you would deploy.

The lab reads a synthesized CloudFormation template, builds the sources it describes, and runs the real handler code
on virtual time. It knows nothing about any particular application.
"""

from retrylab.assembly import Assembly
from retrylab.errors import LabError, Refused
from retrylab.lab import Lab
from retrylab.parameters import Parameters
from retrylab.scenario import Effect, Expect, Scenario, scenario

__all__ = ["Assembly", "Effect", "Expect", "Lab", "LabError", "Parameters", "Refused", "Scenario", "scenario"]
