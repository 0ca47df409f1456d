"""A facilitator on loopback. It checks each payment with the published library `x402`, and moves no money.

Only the network is not real: `Network` answers in its place, and notes which authorizations were used.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

from x402.mechanisms.evm.exact.v1.facilitator import ExactEvmSchemeV1
from x402.schemas import SettleResponse
from x402.schemas.v1 import PaymentPayloadV1, PaymentRequirementsV1


class Network:
    """What the library asks of a network: every account has enough money and no code."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def get_code(self, address: str) -> bytes:
        return b""

    def read_contract(self, address: str, abi: list, function_name: str, *arguments: object) -> None:
        """A simulated transfer, which succeeds by not failing."""


class Facilitator(ThreadingHTTPServer):
    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.network = Network()
        self.scheme = ExactEvmSchemeV1(self.network)
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def answer(self, path: str, body: dict) -> dict:
        self.asked.append(path)
        payload = PaymentPayloadV1.model_validate(body["paymentPayload"])
        requirements = PaymentRequirementsV1.model_validate(body["paymentRequirements"])
        verified = self.scheme.verify(payload, requirements)
        if path == "/verify":
            return verified.model_dump(by_alias=True, exclude_none=True)
        nonce = payload.payload["authorization"]["nonce"]
        settles = verified.is_valid and nonce not in self.network.used
        self.network.used.add(nonce)
        settled = SettleResponse(
            success=settles,
            error_reason=None if settles else verified.invalid_reason or "invalid_exact_evm_nonce_already_used",
            transaction=f"0x{uuid4().hex}{uuid4().hex}" if settles else "",
            network=requirements.network,
            payer=verified.payer,
        )
        return settled.model_dump(by_alias=True, exclude_none=True)


class Handler(BaseHTTPRequestHandler):
    server: Facilitator

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Prints nothing."""
