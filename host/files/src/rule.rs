//! The rule for owners and modes. It depends only on the attributes of a file, and reads nothing.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_READ: u32 = 0o004;
/// The permission bits of the group and of others.
const SHARED: u32 = 0o077;
const PERMISSIONS: u32 = 0o7777;

const ROOT: u32 = 0;

/// The purpose of a file or folder. It decides which access of other users is tolerated.
///
/// The owner must be root or this user; for [`Private`](Self::Private) only this user. The sticky bit is ignored,
/// because others can still add files to a folder that has this bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The file is executed or obeyed because of the folder that it is in. Neither its group nor others may have write
    /// access.
    Managed,
    /// The file is executed or obeyed because the operator's config names it. Others must not have write access. Write
    /// access of the group is logged.
    Named,
    /// The file contains a token, a key or another secret. Others must not have write access. Write access of the group
    /// is logged, and so is read access of others. The group may read the file, because Kubernetes mounts secrets in
    /// this way.
    Secret,
    /// This process writes the file for its own use. No other user may read or write such a file, or write to such a
    /// folder. Any further access to the folder is logged.
    Private,
}

/// The result of checking a file or folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// Accepted, with a warning for the operator.
    Remark(String),
    Refused(String),
}

/// The attributes of a file or folder that the rule uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) is_folder: bool,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    /// The permission bits of `st_mode`.
    pub(crate) mode: u32,
}

impl From<&Metadata> for Attributes {
    fn from(metadata: &Metadata) -> Self {
        let mode = metadata.mode() & PERMISSIONS;
        Self { is_folder: metadata.is_dir(), owner: metadata.uid(), group: metadata.gid(), mode }
    }
}

impl Purpose {
    /// Checks a file for the user with id `user`. `path` appears in the message.
    pub(crate) fn judge(self, attributes: Attributes, user: u32, path: &Path) -> Verdict {
        // The owner is checked first: the owner of a file can change its mode after this check.
        if let Some(reason) = self.foreign(attributes, user, path) {
            return Verdict::Refused(reason);
        }
        let Attributes { is_folder, group, mode, .. } = attributes;
        // A group with the user's own id has no other members on systems with umask 002.
        let is_shared_group = group != user;
        let by_group = mode & GROUP_WRITES != 0;
        let by_others = mode & OTHERS_WRITE != 0;
        let mend = |change: &str| format!("(mode {mode:04o}): run `chmod {change} {}`", path.display());
        match self {
            Self::Private if !is_folder && mode & SHARED != 0 => {
                Verdict::Refused(format!("others can read or write it {}", mend("600")))
            }
            Self::Managed | Self::Private if by_group || by_others => {
                Verdict::Refused(format!("it can be written by others {}, after checking its content", mend("go-w")))
            }
            Self::Private if mode & SHARED != 0 => Verdict::Remark(format!("others can list it {}", mend("700"))),
            Self::Named | Self::Secret if by_others => {
                Verdict::Refused(format!("it can be written by others {}, after checking its content", mend("go-w")))
            }
            Self::Secret if mode & OTHERS_READ != 0 => {
                Verdict::Remark(format!("it is secret, and others can read it {}", mend("o-r")))
            }
            Self::Named | Self::Secret if by_group && is_shared_group => {
                Verdict::Remark(format!("it can be written by group {group} {}", mend("g-w")))
            }
            Self::Managed | Self::Named | Self::Secret | Self::Private => Verdict::Fine,
        }
    }

    /// The reason why the owner is not acceptable; `None` if the owner is.
    fn foreign(self, attributes: Attributes, user: u32, path: &Path) -> Option<String> {
        let owner = attributes.owner;
        let path = path.display();
        match self {
            _ if owner == user => None,
            Self::Private => Some(format!("it belongs to another user ({owner}); name a place of your own")),
            Self::Managed | Self::Named | Self::Secret if owner == ROOT => None,
            Self::Managed | Self::Named | Self::Secret => Some(format!(
                "it belongs to another user ({owner}), who can write it: run `chown {user} {path}`, after checking \
                 its content"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Attributes, Purpose, Verdict};

    const ROOT: u32 = 0;
    const USER: u32 = 1000;
    const STRANGER: u32 = 1001;
    const STAFF: u32 = 50;

    fn judge(purpose: Purpose, owner: u32, group: u32, mode: u32, is_folder: bool) -> Verdict {
        purpose.judge(Attributes { is_folder, owner, group, mode }, USER, Path::new("/etc/it"))
    }

    fn file(purpose: Purpose, mode: u32) -> Verdict {
        judge(purpose, USER, STAFF, mode, false)
    }

    fn folder(purpose: Purpose, mode: u32) -> Verdict {
        judge(purpose, USER, STAFF, mode, true)
    }

    fn is_refused(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Refused(_))
    }

    #[test]
    fn a_file_of_another_user_is_refused_for_every_purpose() {
        for purpose in [Purpose::Managed, Purpose::Named, Purpose::Secret, Purpose::Private] {
            let verdict = judge(purpose, STRANGER, STAFF, 0o600, false);
            assert!(is_refused(&verdict), "{purpose:?}");
            assert_eq!(judge(purpose, USER, STAFF, 0o600, false), Verdict::Fine, "{purpose:?}");
        }
    }

    #[test]
    fn files_of_root_are_trusted_except_private_ones() {
        for purpose in [Purpose::Managed, Purpose::Named, Purpose::Secret] {
            assert_eq!(judge(purpose, ROOT, ROOT, 0o600, false), Verdict::Fine, "{purpose:?}");
        }
        assert!(is_refused(&judge(Purpose::Private, ROOT, ROOT, 0o600, false)));
    }

    #[test]
    fn files_that_others_can_write_are_refused_for_every_purpose() {
        for purpose in [Purpose::Managed, Purpose::Named, Purpose::Secret, Purpose::Private] {
            for mode in [0o666, 0o602, 0o1777, 0o777] {
                assert!(is_refused(&file(purpose, mode)), "{purpose:?} {mode:o}");
                assert!(is_refused(&folder(purpose, mode)), "{purpose:?} {mode:o}");
            }
        }
    }

    #[test]
    fn managed_files_that_the_group_can_write_are_refused() {
        assert!(is_refused(&file(Purpose::Managed, 0o664)) && is_refused(&folder(Purpose::Managed, 0o775)));
        assert!(is_refused(&judge(Purpose::Managed, USER, USER, 0o664, false)));
        for purpose in [Purpose::Named, Purpose::Secret] {
            assert!(matches!(file(purpose, 0o660), Verdict::Remark(_)), "{purpose:?}");
        }
    }

    #[test]
    fn a_group_of_the_users_own_is_the_user() {
        for purpose in [Purpose::Named, Purpose::Secret] {
            assert_eq!(judge(purpose, USER, USER, 0o660, false), Verdict::Fine, "{purpose:?}");
        }
    }

    #[test]
    fn secrets_mounted_by_kubernetes_are_accepted_with_at_most_a_warning() {
        assert_eq!(judge(Purpose::Secret, ROOT, STAFF, 0o440, false), Verdict::Fine);
        assert_eq!(judge(Purpose::Secret, ROOT, ROOT, 0o400, false), Verdict::Fine);
        assert!(matches!(judge(Purpose::Secret, ROOT, ROOT, 0o644, false), Verdict::Remark(_)));
        assert_eq!(judge(Purpose::Named, ROOT, ROOT, 0o644, false), Verdict::Fine);
    }

    #[test]
    fn private_files_exclude_others_and_private_folders_warn_about_access() {
        for mode in [0o644, 0o640, 0o604, 0o610] {
            assert!(is_refused(&file(Purpose::Private, mode)), "{mode:o}");
        }
        assert!(matches!(folder(Purpose::Private, 0o755), Verdict::Remark(_)));
        assert_eq!(folder(Purpose::Private, 0o700), Verdict::Fine);
    }

    #[test]
    fn a_refusal_names_the_mode_and_the_command_that_fixes_it() {
        let Verdict::Refused(reason) = file(Purpose::Named, 0o666) else { unreachable!("it is refused") };
        assert!(reason.contains("mode 0666") && reason.contains("`chmod go-w /etc/it`"), "{reason}");
        let stranger = judge(Purpose::Named, STRANGER, STAFF, 0o600, false);
        let Verdict::Refused(reason) = stranger else { unreachable!("it is refused") };
        assert!(reason.contains("(1001)") && reason.contains("`chown 1000 /etc/it`"), "{reason}");
    }
}
