# Puts the contract beside the world of a language, where its tools look for it: . ../contract.sh
contract=${ANNEX_WIT:-../../../wit}/annex-extension@0.1.0
rm -rf wit/deps
cp -R "$contract/deps" wit/deps
mkdir wit/deps/annex-extension
cp "$contract"/*.wit wit/deps/annex-extension/
