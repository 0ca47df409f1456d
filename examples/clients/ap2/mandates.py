"""Mandates of AP2 v0.2, made with the published library `sd-jwt`: SD-JWTs that a wallet signs, and that an agent closes."""

import base64
import hashlib
import json
import time
from uuid import uuid4

from jwcrypto.jwk import JWK
from jwcrypto.jws import JWS
from sd_jwt.common import SDObj
from sd_jwt.issuer import SDJWTIssuer

SHOP = {"id": "https://shop.example.com", "name": "Shop", "website": "https://shop.example.com/"}
OTHER = {"id": "https://other.example.com", "name": "Other", "website": "https://other.example.com/"}
CARD = {"id": "card-1", "type": "card", "description": "Card ending in 4242"}
SHOES = {"id": "shoes-red", "title": "Red shoes"}

# The key of RFC 7515, appendix A.3. The shop and the wallet of this demonstration share it.
DEMO = JWK(
    kty="EC",
    crv="P-256",
    kid="demo-1",
    x="f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    y="x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    d="jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
)
AGENT = JWK.generate(kty="EC", crv="P-256")


def sha256(text: str) -> str:
    """The hash by which mandates name a text: SHA-256 in base64url without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def checkout(merchant: dict = SHOP, amount: int = 11_900) -> str:
    """A checkout of one pair of shoes, signed by the shop."""
    now, totals = int(time.time()), [{"type": "subtotal", "amount": amount}, {"type": "total", "amount": amount}]
    claims = {
        "id": str(uuid4()),
        "merchant": merchant,
        "line_items": [{"id": "li-1", "item": {**SHOES, "price": amount}, "quantity": 1, "totals": totals}],
        "status": "ready_for_complete",
        "currency": "USD",
        "totals": totals,
        "links": [],
        "iat": now,
        "exp": now + 1_800,
    }
    token = JWS(json.dumps(claims))
    token.add_signature(DEMO, alg="ES256", protected=json.dumps({"alg": "ES256", "typ": "JWT", "kid": "demo-1"}))
    return token.serialize(compact=True)


def checkout_mandate(jwt: str) -> dict:
    return {"vct": "mandate.checkout.1", SDObj("checkout_jwt"): jwt, "checkout_hash": sha256(jwt)}


def payment_mandate(jwt: str, amount: int = 11_900) -> dict:
    return {
        "vct": "mandate.payment.1",
        "transaction_id": sha256(jwt),
        "payee": SHOP,
        "payment_amount": {"amount": amount, "currency": "USD"},
        "payment_instrument": CARD,
    }


def seen(mandate: dict) -> str:
    """A mandate whose content the user has seen. The wallet signs it."""
    now = int(time.time())
    payload = {"delegate_payload": [SDObj({**mandate, "iat": now, "exp": now + 3_600})]}
    return SDJWTIssuer(payload, DEMO, extra_header_parameters={"kid": "demo-1"}).sd_jwt_issuance


def opened(kind: str, constraints: list) -> str:
    """An open mandate: within the constraints the agent may close it."""
    public = AGENT.export_public(as_dict=True)
    jwk = {name: public[name] for name in ("kty", "crv", "x", "y")}
    return seen({"vct": f"mandate.{kind}.open.1", "constraints": constraints, "cnf": {"jwk": jwk}})


def closed(open_mandate: str, mandate: dict, jwt: str, audience: str = SHOP["id"]) -> str:
    """The agent closes an open mandate for one checkout."""
    claims = {
        "iat": int(time.time()),
        "aud": audience,
        "nonce": sha256(jwt),
        "sd_hash": sha256(open_mandate),
        "delegate_payload": [SDObj(mandate)],
    }
    hop = SDJWTIssuer(claims, AGENT, extra_header_parameters={"typ": "kb+sd-jwt"})
    return f"{open_mandate.removesuffix('~')}~~{hop.sd_jwt_issuance}"
