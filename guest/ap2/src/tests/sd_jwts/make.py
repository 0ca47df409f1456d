"""Makes `vectors.json`: mandates of AP2 v0.2, by the published SDK of AP2 and the published library `sd-jwt`.

    git clone https://github.com/google-agentic-commerce/AP2
    git -C AP2 checkout e1ea56db72a6385bce3e5c1112b3a56ce60acb43
    python3 -m venv .venv
    .venv/bin/pip install sd-jwt==0.10.4 jwcrypto==1.5.6 pydantic==2.12.5 cryptography==46.0.5
    PYTHONPATH=AP2/code/sdk/python .venv/bin/python make.py > vectors.json

Python 3.11 or newer. The salts and signatures differ each time, the rest does not. Each mandate is verified by the SDK
before it is written. The keys are those of `samples.rs`.
"""

import json
import time

import sd_jwt.holder
from ap2.sdk.checkout_mandate_chain import CheckoutMandateChain
from ap2.sdk.generated.checkout_mandate import CheckoutMandate
from ap2.sdk.generated.open_checkout_mandate import (
    AllowedMerchants,
    Item,
    LineItemRequirements,
    LineItems,
    OpenCheckoutMandate,
)
from ap2.sdk.generated.open_payment_mandate import (
    AllowedPayees,
    AllowedPaymentInstruments,
    AllowedPisps,
    AmountRange,
    Budget,
    ExecutionDate,
    OpenPaymentMandate,
    PaymentReference,
)
from ap2.sdk.generated.payment_mandate import PaymentMandate
from ap2.sdk.generated.types.amount import Amount
from ap2.sdk.generated.types.merchant import Merchant
from ap2.sdk.generated.types.payment_instrument import PaymentInstrument
from ap2.sdk.generated.types.pisp import PISP
from ap2.sdk.jwt_helper import create_jwt
from ap2.sdk.mandate import MandateClient
from ap2.sdk.payment_mandate_chain import PaymentMandateChain
from ap2.sdk.sdjwt import compute_sd_hash, kb_sd_jwt, parse_token
from ap2.sdk.utils import compute_sha256_b64url
from cryptography.hazmat.primitives.asymmetric import ec
from jwcrypto.jwk import JWK
from sd_jwt.common import SDObj
from sd_jwt.holder import SDJWTHolder
from sd_jwt.issuer import SDJWTIssuer

# 2026-11-23T12:00:00Z, the time of the tests.
NOW = 1_795_435_200
time.time = sd_jwt.holder.time = lambda: NOW

PROCESSOR = "https://processor.example"
SHOP = Merchant(id="https://shop.example", name="Shop", website="https://shop.example/")
OTHER = Merchant(id="https://other.example", name="Other", website="https://other.example/")
CARD = PaymentInstrument(id="card-1", type="card", description="Card ending in 4242")
PISP_1 = PISP(legal_name="Pay Ltd.", brand_name="Pay", domain_name="pay.example")

client = MandateClient()


def key(seed: int, kid: str) -> JWK:
    """The key whose private part is 32 times this byte."""
    private = ec.derive_private_key(int.from_bytes(bytes([seed]) * 32, "big"), ec.SECP256R1())
    return JWK.from_json(json.dumps({**json.loads(JWK.from_pyca(private).export()), "kid": kid}))


MERCHANT, WALLET, AGENT = key(1, "m-1"), key(2, "w-1"), key(3, "agent-1")
CNF = {"jwk": {name: value for name, value in AGENT.export_public(as_dict=True).items() if name != "kid"}}


def checkout(number: str, **changes: object) -> str:
    """A checkout, signed by the merchant."""
    totals = [{"type": "subtotal", "amount": 13_900}, {"type": "total", "amount": 13_900}]
    claims = {
        "id": number,
        "merchant": SHOP.model_dump(),
        "line_items": [
            {"id": "li-1", "item": {"id": "shoes-red", "title": "Red shoes", "price": 11_900}, "quantity": 1, "totals": totals},
            {"id": "li-2", "item": {"id": "socks", "title": "Socks", "price": 1_000}, "quantity": 2, "totals": totals},
        ],
        "status": "incomplete",
        "currency": "USD",
        "totals": totals,
        "links": [{"type": "privacy_policy", "url": "https://shop.example/privacy"}],
        "iat": NOW - 60,
        "exp": NOW + 1_800,
        **changes,
    }
    return create_jwt({"alg": "ES256", "typ": "JWT", "kid": "m-1"}, claims, MERCHANT)


def checkout_mandate(jwt: str, **dates: int) -> CheckoutMandate:
    return CheckoutMandate(checkout_jwt=jwt, checkout_hash=compute_sha256_b64url(jwt), **dates)


def payment_mandate(jwt: str, **changes: object) -> PaymentMandate:
    values = {"payee": SHOP, "payment_amount": Amount(amount=13_900, currency="USD"), "payment_instrument": CARD}
    return PaymentMandate(transaction_id=compute_sha256_b64url(jwt), **{**values, **changes})


def wallet_key(_token: object) -> JWK:
    return WALLET


def direct() -> dict:
    """The user sees the closed mandates, and the wallet signs them."""
    jwt, dates = checkout("order-1"), {"iat": NOW - 30, "exp": NOW + 3_570}
    mandates = {
        "checkout": client.create([checkout_mandate(jwt, **dates)], WALLET),
        "payment": client.create([payment_mandate(jwt, **dates)], WALLET),
    }
    client.verify(mandates["checkout"], WALLET, CheckoutMandate, current_time=NOW)
    client.verify(mandates["payment"], WALLET, PaymentMandate, current_time=NOW)
    # A version of the same checkout that the merchant makes afterwards.
    return {"checkout_jwt": jwt, "later_checkout_jwt": checkout("order-1", currency="EUR"), **mandates}


LINE_ITEMS = LineItems(
    items=[
        LineItemRequirements(
            id="shoes",
            acceptable_items=[Item(id="shoes-red", title="Red shoes"), Item(id="shoes-blue", title="Blue shoes")],
            quantity=1,
        ),
        LineItemRequirements(id="socks", acceptable_items=[Item(id="socks", title="Socks")], quantity=2),
    ]
)


def open_checkout(*constraints: object) -> str:
    mandate = OpenCheckoutMandate(constraints=list(constraints), cnf=CNF, iat=NOW - 600, exp=NOW + 3_000)
    return client.create([mandate], WALLET)


def open_payment(*constraints: object, **fixed: object) -> str:
    mandate = OpenPaymentMandate(constraints=list(constraints), cnf=CNF, iat=NOW - 600, exp=NOW + 3_000, **fixed)
    return client.create([mandate], WALLET)


def closed(open_mandate: str, mandate: object, jwt: str, aud: str = PROCESSOR, hash_mode: str = "sd_hash") -> str:
    """The agent closes an open mandate. The nonce is the hash of the checkout, as in the samples of AP2."""
    nonce = compute_sha256_b64url(jwt)
    return client.present(AGENT, open_mandate, [mandate], nonce=nonce, aud=aud, hash_mode=hash_mode)


def payment_constraints(open_checkout_mandate: str) -> list:
    return [
        AmountRange(currency="USD", max=20_000, min=100),
        AllowedPayees(allowed=[OTHER, SHOP]),
        AllowedPaymentInstruments(allowed=[CARD]),
        AllowedPisps(allowed=[PISP_1]),
        ExecutionDate(not_before="2026-11-23T00:00:00Z", not_after="2026-11-24T00:00:00Z"),
        PaymentReference(conditional_transaction_id=compute_sd_hash(parse_token(open_checkout_mandate))),
    ]


def delegated() -> dict:
    """The user signs constraints, and the agent closes the mandates."""
    jwt = checkout("order-2")
    opened = open_checkout(LINE_ITEMS, AllowedMerchants(allowed=[SHOP, OTHER]))
    opened_payment = open_payment(*payment_constraints(opened), payment_instrument=CARD)
    payment = payment_mandate(jwt, pisp=PISP_1, execution_date="2026-11-23T12:00:00Z")
    mandates = {
        "checkout": closed(opened, checkout_mandate(jwt), jwt),
        "payment": closed(opened_payment, payment, jwt),
        "payment_of_issuer_jwt_hash": closed(opened_payment, payment, jwt, hash_mode="issuer_jwt_hash"),
    }
    expected = {"expected_aud": PROCESSOR, "expected_nonce": compute_sha256_b64url(jwt), "current_time": NOW}
    payloads = client.verify(mandates["checkout"], wallet_key, **expected)
    chain = CheckoutMandateChain.parse(payloads)
    assert chain.verify(compute_sha256_b64url(jwt), jwt) == []
    for name in ("payment", "payment_of_issuer_jwt_hash"):
        payloads = client.verify(mandates[name], wallet_key, **expected)
        hashes = (compute_sha256_b64url(jwt), compute_sd_hash(parse_token(opened)))
        assert PaymentMandateChain.parse(payloads).verify(*hashes) == []
    return mandates


def refused() -> dict:
    """Mandates that the SDK signs, each with one fault."""
    jwt, dates = checkout("order-3"), {"iat": NOW - 30, "exp": NOW + 3_570}
    others = checkout("order-4", merchant=OTHER.model_dump())
    wide = AmountRange(currency="USD", max=20_000)
    allowed = AllowedMerchants(allowed=[SHOP])
    no_socks = LineItems(items=LINE_ITEMS.items[:1])
    hidden = client.present(
        AGENT,
        open_checkout(allowed),
        [checkout_mandate(jwt)],
        # Only what has these names is shown, and no merchant.
        claims_to_disclose={"vct": True, "checkout_jwt": True},
        nonce=compute_sha256_b64url(jwt),
        aud=PROCESSOR,
    )

    def direct_payment(**changes: object) -> str:
        return client.create([payment_mandate(jwt, **dates, **changes)], WALLET)

    def delegated_payment(*constraints: object) -> str:
        return closed(open_payment(*constraints), payment_mandate(jwt), jwt)

    euros = Amount(amount=13_900, currency="EUR")
    return {
        "checkout": client.create([checkout_mandate(jwt, **dates)], WALLET),
        "other_merchant": client.create([checkout_mandate(others, **dates)], WALLET),
        "expired": client.create([checkout_mandate(jwt, iat=NOW - 900, exp=NOW - 61)], WALLET),
        "future": client.create([checkout_mandate(jwt, iat=NOW + 61, exp=NOW + 3_570)], WALLET),
        "undated": client.create([checkout_mandate(jwt)], WALLET),
        "by_agent": client.create([checkout_mandate(jwt, **dates)], AGENT),
        "amount": direct_payment(payment_amount=Amount(amount=1, currency="USD")),
        "currency": direct_payment(payment_amount=euros),
        "payee": direct_payment(payee=OTHER),
        "audience": closed(open_checkout(allowed), checkout_mandate(jwt), jwt, aud="https://other.example"),
        "nonce": closed(open_checkout(allowed), checkout_mandate(jwt), others),
        "hidden_merchant": hidden,
        "no_socks": closed(open_checkout(no_socks), checkout_mandate(jwt), jwt),
        "not_allowed_merchant": closed(open_checkout(AllowedMerchants(allowed=[OTHER])), checkout_mandate(jwt), jwt),
        "too_much": delegated_payment(AmountRange(currency="USD", max=13_899)),
        "not_allowed_payee": delegated_payment(AllowedPayees(allowed=[OTHER])),
        "not_allowed_instrument": delegated_payment(
            AllowedPaymentInstruments(allowed=[PaymentInstrument(id="card-2", type="card")])
        ),
        "not_allowed_pisp": delegated_payment(AllowedPisps(allowed=[PISP_1])),
        "too_late": delegated_payment(ExecutionDate(not_after="2026-11-22")),
        "other_reference": delegated_payment(PaymentReference(conditional_transaction_id="x")),
        "budget": delegated_payment(wide, Budget(currency="USD", max=1_000)),
        "fixed_amount": closed(open_payment(wide, payment_amount=euros), payment_mandate(jwt), jwt),
    }


def credential() -> dict:
    """The user's key, for which a credential vouches, signs the closed mandate."""
    jwt = checkout("order-5")
    claims = {
        "iss": "https://wallet.example",
        "vct": "com.emvco.dpc",
        "exp": NOW + 9_000,
        SDObj("card_last_four"): "4242",
        SDObj("card_network_code"): "ACME",
    }
    issued = SDJWTIssuer(claims, WALLET, AGENT, extra_header_parameters={"kid": "w-1", "typ": "dc+sd-jwt"})
    holder = SDJWTHolder(issued.sd_jwt_issuance)
    holder.create_presentation({"card_last_four": True})
    shown, nonce = holder.sd_jwt_presentation, compute_sha256_b64url(jwt)
    mandate = kb_sd_jwt.create(parse_token(shown), AGENT, checkout_mandate(jwt), aud=PROCESSOR, nonce=nonce)
    chain = f"{shown.removesuffix('~')}~~{mandate.sd_jwt_issuance}"
    client.verify(chain, wallet_key, expected_aud=PROCESSOR, expected_nonce=nonce, current_time=NOW)
    return {"checkout": chain}


def bound() -> dict:
    """The wallet signs a closed mandate for the agent's key, and the agent adds a key binding (RFC 9901)."""
    jwt = checkout("order-6")
    content = checkout_mandate(jwt, iat=NOW - 30, exp=NOW + 3_570).model_dump(exclude_none=True)
    content[SDObj("checkout_jwt")] = content.pop("checkout_jwt")
    claims = {"iss": "https://wallet.example", "delegate_payload": [SDObj(content)]}
    issued = SDJWTIssuer(claims, WALLET, AGENT, extra_header_parameters={"kid": "w-1", "typ": "dc+sd-jwt"})

    def presented(nonce: str, aud: str, holder_key: JWK = AGENT) -> str:
        holder = SDJWTHolder(issued.sd_jwt_issuance)
        holder.create_presentation({"delegate_payload": [{"checkout_jwt": True}]}, nonce, aud, holder_key)
        return holder.sd_jwt_presentation

    nonce = compute_sha256_b64url(jwt)
    return {
        "checkout": presented(nonce, PROCESSOR),
        "audience": presented(nonce, "https://other.example"),
        "nonce": presented("n", PROCESSOR),
        "other_key": presented(nonce, PROCESSOR, MERCHANT),
        "unbound": issued.sd_jwt_issuance,
    }


if __name__ == "__main__":
    makers = (direct, delegated, refused, credential, bound)
    print(json.dumps({make.__name__: make() for make in makers}, indent=1))
