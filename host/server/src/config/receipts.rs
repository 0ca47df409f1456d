//! `[receipts]`: signed receipts of turns.

use serde::Deserialize;

use super::card::CardConfig;

/// The table `[receipts]`: the receipts of the agent's turns, which the key of `[card.signing]` signs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptsConfig {
    /// Signs a receipt of each turn. Default: yes, if the config has the table.
    pub enabled: bool,
}

impl Default for ReceiptsConfig {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// True if turns get receipts.
pub(crate) fn are_wanted(receipts: Option<&ReceiptsConfig>) -> bool {
    receipts.is_some_and(|receipts| receipts.enabled)
}

/// Checks that the card has a key for receipts.
///
/// # Errors
/// The key of the config, and the reason why it is refused.
pub(super) fn check(receipts: Option<&ReceiptsConfig>, card: &CardConfig) -> Result<(), (&'static str, &'static str)> {
    if are_wanted(receipts) && card.signing.is_none() {
        return Err(("receipts", "needs the key that signs the card: add [card.signing], or leave [receipts] out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Config;

    #[test]
    fn receipts_need_the_key_of_the_card() {
        let agent = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"script\"\nname = \"a\"\nrule = []\n";
        let parse = |more: &str| Config::parse(Path::new("annex.toml"), &format!("{agent}{more}"));
        let refused = parse("[receipts]\n").expect_err("no key").to_string();
        assert!(refused.contains("receipts") && refused.contains("add [card.signing]"), "{refused}");
        for more in ["[receipts]\nenabled = false\n", "[card.signing]\nkid = \"k\"\nkey_file = \"k.pem\"\n[receipts]\n"]
        {
            parse(more).expect("a config");
        }
    }
}
