"""Large results: kept in S3, with only a pointer in the record. Optional.

    Operation(..., large_results=LargeResults())

A duplicate of a large record would cost a write unit for each KB of it. The object's name contains the owner token, so
that a late attempt cannot overwrite the winner's result. The bucket's lifecycle deletes objects after the record
lifetime; the function needs s3:PutObject and s3:GetObject on `results/*` and, so that a missing object is told from a
forbidden one, s3:ListBucket.
"""

from shared.aws import s3
from shared.errors import ResultMissingError
from shared.settings import results_bucket


class LargeResults:
    """Keeps results of more than `inline_bytes` of JSON in the bucket that RESULTS_BUCKET names."""

    def __init__(self, inline_bytes: int = 1024) -> None:
        self.inline_bytes = inline_bytes

    def keep(self, record_id: str, owner: str, data: str) -> str:
        """Write a result and return its pointer. Raises what boto3 raises."""
        pointer = f"results/{record_id.replace('#', '/')}/{owner}"
        s3().put_object(Bucket=results_bucket(), Key=pointer, Body=data.encode(), ContentType="application/json")
        return pointer

    def fetch(self, pointer: str) -> str:
        """Read a result. Raises ResultMissingError when it is gone, and what boto3 raises."""
        client = s3()
        try:
            body: bytes = client.get_object(Bucket=results_bucket(), Key=pointer)["Body"].read()
        except client.exceptions.NoSuchKey:
            raise ResultMissingError(
                f"result {pointer} is gone from its bucket; wanted it for as long as its record: compare the bucket's "
                "lifecycle with the record lifetime"
            ) from None
        return body.decode()
