#!/usr/bin/env bash
# Makes keyless.bundle.json and keyless.root.json with OpenSSL alone: a signature as Sigstore makes them since 2025, with an entry of
# a log of version 2, and a signed timestamp in place of the log's time. The certificate ends one day after it was made.
#
#     host/trust/tests/data/make-keyless.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly payload_type=application/vnd.in-toto+json
readonly hex=$(printf '1%.0s' {1..64})
readonly statement="{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"digest\":{\"sha256\":\"$hex\"}}],\"predicateType\":\"https://sigstore.dev/cosign/sign/v1\",\"predicate\":{}}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

base64_of() { base64 -w0 "$1"; }
hex_of() { xxd -p "$1" | tr -d '\n'; }
sha256_of() { openssl dgst -sha256 -binary "$1"; }
sign() { openssl dgst -sha256 -sign "$scratch/$1.key" "$2"; }

# The bytes of a hexadecimal text after their length in so many bytes, as a hexadecimal text.
with_length() { printf "%0$(($1 * 2))x%s" $((${#2} / 2)) "$2"; }

for name in authority clock signer certificates log; do
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$scratch/$name.key" 2>/dev/null
    openssl pkey -in "$scratch/$name.key" -pubout -outform DER -out "$scratch/$name.spki"
    sha256_of "$scratch/$name.spki" >"$scratch/$name.id"
done

cat >"$scratch/openssl.cnf" <<END
[req]
distinguished_name = name
prompt = no
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[clock]
extendedKeyUsage = critical, timeStamping
[signer]
keyUsage = critical, digitalSignature
extendedKeyUsage = codeSigning
subjectAltName = critical, URI:https://github.com/acme/redact/.github/workflows/release.yml@refs/tags/v1
1.3.6.1.4.1.57264.1.8 = ASN1:UTF8String:https://token.actions.githubusercontent.com
1.3.6.1.4.1.57264.1.12 = ASN1:UTF8String:https://github.com/acme/redact
[tsa]
default_tsa = tsa
serial = $scratch/serial
signer_digest = sha256
digests = sha256
default_policy = 1.2.3.4
accuracy = secs:1
signer_cert = $scratch/clock.crt
signer_key = $scratch/clock.key
certs = $scratch/authority.crt
ess_cert_id_alg = sha256
END
echo 01 >"$scratch/serial"

# Certifies a key, with the extensions of a section of the file.
certify() {
    openssl req -new -config "$2" -subj "/CN=$1" -key "$scratch/$1.key" |
        openssl x509 -req -CA "$scratch/authority.crt" -CAkey "$scratch/authority.key" -set_serial 7 -days "$3" \
            -extfile "$2" -extensions "$1" -out "$scratch/$1.crt" 2>/dev/null
    openssl x509 -in "$scratch/$1.crt" -outform DER -out "$scratch/$1.der"
}

openssl req -x509 -new -config "$scratch/openssl.cnf" -extensions authority -subj /CN=authority -days 36500 \
    -key "$scratch/authority.key" -out "$scratch/authority.crt"
openssl x509 -in "$scratch/authority.crt" -outform DER -out "$scratch/authority.der"
certify clock "$scratch/openssl.cnf" 36500

# The log of certificates signs the certificate without the extension that has its signature (RFC 6962, sections 3.2 and 3.3).
# Both certificates have to be made in the same second, because the dates are signed too.
until [[ ${second-} == "$(date +%s)" ]]; do
    second=$(date +%s)
    certify signer "$scratch/openssl.cnf" 1
    openssl asn1parse -in "$scratch/signer.crt" -strparse 4 -noout -out "$scratch/body"
    time=$(printf %016x $((second * 1000)))
    printf '0000%s0001%s%s0000' "$time" "$(hex_of "$scratch/authority.id")" "$(with_length 3 "$(hex_of "$scratch/body")")" |
        xxd -r -p >"$scratch/message"
    sign certificates "$scratch/message" >"$scratch/signature"
    timestamp=00$(hex_of "$scratch/certificates.id")${time}00000403$(with_length 2 "$(hex_of "$scratch/signature")")
    {
        # The section of the signer is the last one here, so that the line below belongs to it.
        sed '/^\[tsa\]/,$d' "$scratch/openssl.cnf"
        echo "1.3.6.1.4.1.11129.2.4.2 = ASN1:FORMAT:HEX,OCTETSTRING:$(with_length 2 "$(with_length 2 "$timestamp")")"
    } >"$scratch/with-timestamp.cnf"
    certify signer "$scratch/with-timestamp.cnf" 1
done

# The envelope.
printf 'DSSEv1 %d %s %d %s' "${#payload_type}" "$payload_type" "${#statement}" "$statement" >"$scratch/message"
sign signer "$scratch/message" >"$scratch/signature"
signature=$(base64_of "$scratch/signature")

# The timestamp (RFC 3161).
openssl ts -query -data "$scratch/signature" -sha256 -cert -out "$scratch/query" 2>/dev/null
openssl ts -reply -config "$scratch/openssl.cnf" -section tsa -queryfile "$scratch/query" -out "$scratch/timestamp" 2>/dev/null

# The only entry of the log, and the signed state of the log.
printf '{"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_256","digest":"%s"},"signature":{"content":"%s","verifier":{"keyDetails":"PKIX_ECDSA_P256_SHA_256","x509Certificate":{"rawBytes":"%s"}}}}}}' \
    "$(sha256_of "$scratch/message" | base64 -w0)" "$signature" "$(base64_of "$scratch/signer.der")" >"$scratch/entry"
{ printf '\0' && cat "$scratch/entry"; } >"$scratch/leaf"
tree=$(sha256_of "$scratch/leaf" | base64 -w0)
printf 'log.example\n1\n%s\n' "$tree" >"$scratch/state"
log=$(base64_of "$scratch/log.id")
state_signature=$({ head -c 4 "$scratch/log.id" && sign log "$scratch/state"; } | base64 -w0)

printf '{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{"rawBytes":"%s"},"tlogEntries":[{"logIndex":"0","logId":{"keyId":"%s"},"kindVersion":{"kind":"hashedrekord","version":"0.0.2"},"inclusionProof":{"logIndex":"0","rootHash":"%s","treeSize":"1","hashes":[],"checkpoint":{"envelope":"log.example\\n1\\n%s\\n\\n— log.example %s\\n"}},"canonicalizedBody":"%s"}],"timestampVerificationData":{"rfc3161Timestamps":[{"signedTimestamp":"%s"}]}},"dsseEnvelope":{"payload":"%s","payloadType":"%s","signatures":[{"sig":"%s"}]}}' \
    "$(base64_of "$scratch/signer.der")" "$log" "$tree" "$tree" "$state_signature" "$(base64_of "$scratch/entry")" \
    "$(base64_of "$scratch/timestamp")" "$(printf %s "$statement" | base64 -w0)" "$payload_type" "$signature" >keyless.bundle.json

# A log in the trust root.
log_of() {
    printf '[{"baseUrl":"https://%s.example","hashAlgorithm":"SHA2_256","publicKey":{"rawBytes":"%s","keyDetails":"PKIX_ECDSA_P256_SHA_256"},"logId":{"keyId":"%s"}}]' \
        "$1" "$(base64_of "$scratch/$1.spki")" "$(base64_of "$scratch/$1.id")"
}
printf '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","tlogs":%s,"ctlogs":%s,"certificateAuthorities":[{"uri":"https://authority.example","certChain":{"certificates":[{"rawBytes":"%s"}]}}],"timestampAuthorities":[{"uri":"https://clock.example","certChain":{"certificates":[{"rawBytes":"%s"},{"rawBytes":"%s"}]}}]}' \
    "$(log_of log)" "$(log_of certificates)" "$(base64_of "$scratch/authority.der")" "$(base64_of "$scratch/clock.der")" \
    "$(base64_of "$scratch/authority.der")" >keyless.root.json
