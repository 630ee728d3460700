"""moto's server, stricter: what S3 does and moto does not.

Signatures are checked against the request line as it came (moto decodes the query first, so "prefix=a%2Fb" never fits),
payloads against their x-amz-content-sha256, and conditional writes happen one after the other (moto looks and then
writes, so of two at once both may win).
"""

import functools
import hashlib
import sys
import threading

from flask import request
from moto.iam import access_control
from moto.s3 import responses
from moto.s3.exceptions import S3ClientError
from moto.server import main

create_aws_request = access_control.IAMRequestBase._create_aws_request
check_signature = access_control.IAMRequestBase.check_signature
one_at_a_time = threading.Lock()


def create_from_raw_uri(self):
    self._path = request.environ["RAW_URI"]
    return create_aws_request(self)


def check_signature_and_payload(self):
    check_signature(self)
    claimed = self._headers.get("X-Amz-Content-Sha256", "")
    if claimed != hashlib.sha256(request.get_data()).hexdigest():
        raise S3ClientError("XAmzContentSHA256Mismatch", "The provided header does not match what was computed.")


def serialized(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        with one_at_a_time:
            return method(*args, **kwargs)

    return call


access_control.IAMRequestBase._create_aws_request = create_from_raw_uri
access_control.IAMRequestBase.check_signature = check_signature_and_payload
responses.S3Response.put_object = serialized(responses.S3Response.put_object)
responses.S3Response._key_response_post = serialized(responses.S3Response._key_response_post)
main(sys.argv[1:])
