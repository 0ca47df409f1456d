//! Lists the parts of the extensions in a turn.

use super::Chain;
use crate::chain::participation::{PartInTurn, Participation};
use crate::extension::Extension;

impl Chain {
    /// The extensions that the request activated, each with its part in the turn. Extensions that took no part come last.
    pub fn participations(&self) -> impl Iterator<Item = Participation<'_>> {
        let members = self.members.iter().map(|member| {
            // A member whose call was cancelled is out without a fault.
            let part =
                if member.is_out() && member.part == PartInTurn::Active { PartInTurn::Failed } else { member.part };
            participation(&member.extension, part)
        });
        members.chain(self.absent.iter().map(|(extension, part)| participation(extension, *part)))
    }
}

fn participation(extension: &Extension, part: PartInTurn) -> Participation<'_> {
    Participation { uri: extension.uri(), digest: extension.digest(), part }
}
