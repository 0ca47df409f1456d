#!/usr/bin/env bash
# Makes the keys and bundles of this folder with OpenSSL alone, so that the tests do not only read what this crate writes.
#
#     host/trust/tests/data/make.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly payload_type=application/vnd.in-toto+json
readonly hex=$(printf '1%.0s' {1..64})
readonly statement="{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"digest\":{\"sha256\":\"$hex\"}}],\"predicateType\":\"https://sigstore.dev/cosign/sign/v1\",\"predicate\":{}}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Writes NAME.pub and NAME.bundle.json. The key is thrown away.
make() {
    local name=$1
    shift
    openssl genpkey "$@" -out "$scratch/key.pem" 2>/dev/null
    openssl pkey -in "$scratch/key.pem" -pubout -out "$name.pub"
    printf 'DSSEv1 %d %s %d %s' "${#payload_type}" "$payload_type" "${#statement}" "$statement" >"$scratch/message"
    if [[ $name == ed25519 ]]; then
        openssl pkeyutl -sign -rawin -inkey "$scratch/key.pem" -in "$scratch/message" -out "$scratch/signature"
    else
        openssl dgst -sha256 -sign "$scratch/key.pem" -out "$scratch/signature" "$scratch/message"
    fi
    printf '{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"publicKey":{"hint":""}},"dsseEnvelope":{"payload":"%s","payloadType":"%s","signatures":[{"sig":"%s"}]}}' \
        "$(printf %s "$statement" | base64 -w0)" "$payload_type" "$(base64 -w0 "$scratch/signature")" >"$name.bundle.json"
}

make p256 -algorithm EC -pkeyopt ec_paramgen_curve:P-256
make ed25519 -algorithm ED25519
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 2>/dev/null | openssl pkey -pubout -out rsa.pub
