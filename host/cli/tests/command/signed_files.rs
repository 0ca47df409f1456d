//! Signatures of files, and lists of checksums.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use annex_registry::Digest;
use anyhow::Result;
use tempfile::TempDir;

use crate::support::{Run, free_address, run};

/// A folder with a release: two packages and the list of their checksums, which is signed.
struct Release {
    folder: TempDir,
    key: PathBuf,
}

impl Release {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = new_key(folder.path(), "acme")?;
        for name in ["annex.deb", "annex.whl"] {
            fs::write(folder.path().join(name), name)?;
        }
        let release = Self { folder, key };
        release.write_list(&["annex.deb", "annex.whl"])?;
        Ok(release)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the list with the checksums that these files have now, and signs the list.
    fn write_list(&self, names: &[&str]) -> Result<()> {
        let mut list = String::new();
        for name in names {
            list += &format!("{}  {name}\n", Digest::of(&fs::read(self.path(name))?).hex());
        }
        self.write_signed("SHA256SUMS", &list)
    }

    /// Writes a file and its signature.
    fn write_signed(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path(name), text)?;
        let signature = self.path(&format!("{name}.sigstore.json"));
        if signature.exists() {
            fs::remove_file(&signature)?;
        }
        check(&sign(&self.path(name), &self.key)?, 0, &["signed by the key ", ".sigstore.json"]);
        Ok(())
    }

    fn verify(&self, name: &str) -> Result<Run> {
        verify(&self.path(name), &self.key)
    }
}

/// Makes a key in the folder. Returns the file of the private key.
fn new_key(folder: &Path, name: &str) -> Result<PathBuf> {
    check(&run(["sign".as_ref(), "--generate".as_ref(), folder.join(name).as_os_str()])?, 0, &[]);
    Ok(folder.join(format!("{name}.key")))
}

fn sign(file: &Path, key: &Path) -> Result<Run> {
    run(["sign".as_ref(), file.as_os_str(), "--key".as_ref(), key.as_os_str()])
}

/// Verifies the file by the public half of a private key.
fn verify(file: &Path, key: &Path) -> Result<Run> {
    run(["verify".as_ref(), file.as_os_str(), "--key".as_ref(), key.with_extension("pub").as_os_str()])
}

#[track_caller]
fn check(run: &Run, code: i32, expected: &[&str]) {
    assert_eq!(run.code, Some(code), "{}{}", run.out, run.err);
    for expected in expected {
        assert!(run.out.contains(expected) || run.err.contains(expected), "{expected}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_signed_list_verifies_the_files_beside_it() -> Result<()> {
    let release = Release::new()?;
    let verified = release.verify("SHA256SUMS")?;
    check(&verified, 0, &["signed by ", "acme.pub"]);
    assert_eq!(verified.out, "SHA256SUMS: verified\nannex.deb: verified\nannex.whl: verified\n");
    let again = sign(&release.path("SHA256SUMS"), &release.key)?;
    check(&again, 1, &["SHA256SUMS.sigstore.json is there already; remove it to sign"]);

    // Someone who has fetched one of the packages verifies this one.
    fs::remove_file(release.path("annex.whl"))?;
    let verified = release.verify("SHA256SUMS")?;
    check(&verified, 0, &["not there, so not verified: annex.whl"]);
    assert_eq!(verified.out, "SHA256SUMS: verified\nannex.deb: verified\n");
    fs::remove_file(release.path("annex.deb"))?;
    check(&release.verify("SHA256SUMS")?, 1, &["no file that ", "SHA256SUMS names lies beside it"]);
    Ok(())
}

#[test]
fn a_list_by_another_name_is_found_by_its_first_line() -> Result<()> {
    let release = Release::new()?;
    let list = fs::read_to_string(release.path("SHA256SUMS"))?;
    release.write_signed("checksums.txt", &list)?;
    check(
        &release.verify("checksums.txt")?,
        0,
        &["checksums.txt: verified\nannex.deb: verified\nannex.whl: verified\n"],
    );
    release.write_signed("notes.txt", "Changes\n")?;
    let verified = release.verify("notes.txt")?;
    check(&verified, 0, &[]);
    assert_eq!(verified.out, "notes.txt: verified\n");
    Ok(())
}

#[test]
fn a_changed_file_or_list_is_refused() -> Result<()> {
    let release = Release::new()?;
    fs::write(release.path("annex.whl"), "changed")?;
    check(&release.verify("SHA256SUMS")?, 3, &["SHA256SUMS is another one for: annex.whl", "annex.deb: verified"]);

    // The list that the changed file fits has no signature.
    let signature = fs::read(release.path("SHA256SUMS.sigstore.json"))?;
    release.write_list(&["annex.deb", "annex.whl"])?;
    fs::write(release.path("SHA256SUMS.sigstore.json"), signature)?;
    let refused = release.verify("SHA256SUMS")?;
    check(&refused, 3, &["SHA256SUMS is not trusted: it was changed after it was signed"]);
    assert_eq!(refused.out, "", "nothing was verified");
    Ok(())
}

#[test]
fn a_file_needs_a_signature_by_the_key() -> Result<()> {
    let release = Release::new()?;
    let other = new_key(release.folder.path(), "other")?;
    let list = release.path("SHA256SUMS");
    check(&verify(&list, &other)?, 3, &["SHA256SUMS is not trusted: the key ", " has not signed it"]);
    check(&verify(&list, &release.path("nobody.key"))?, 1, &["cannot read", "nobody.pub"]);
    let private = run(["verify".as_ref(), list.as_os_str(), "--key".as_ref(), other.as_os_str()])?;
    check(&private, 1, &["other.key has no key in PEM", "PUBLIC KEY"]);
    let signature = release.path("SHA256SUMS.sigstore.json");
    fs::set_permissions(&signature, fs::Permissions::from_mode(0o666))?;
    check(&verify(&list, &release.key)?, 1, &["cannot read", "SHA256SUMS.sigstore.json", "chmod"]);
    fs::write(&signature, vec![b' '; (64 << 10) + 1])?;
    fs::set_permissions(&signature, fs::Permissions::from_mode(0o644))?;
    check(&verify(&list, &release.key)?, 1, &["SHA256SUMS.sigstore.json", "it is larger than"]);
    fs::write(&signature, "{}")?;
    check(&verify(&list, &release.key)?, 3, &["its signature does not count: it is not a bundle"]);
    fs::remove_file(&signature)?;
    check(&verify(&list, &release.key)?, 3, &["has no signature", "SHA256SUMS.sigstore.json is missing"]);
    Ok(())
}

#[test]
fn a_list_that_names_other_files_than_those_beside_it_is_refused() -> Result<()> {
    let release = Release::new()?;
    let hex = Digest::of(b"").hex().to_owned();
    let good = format!("{hex}  annex.deb\n");
    for (list, reason) in [
        (format!("{good}{hex}  ../annex.deb\n"), "line 2 has to be a SHA-256"),
        (format!("{good}\n{good}"), "line 2 has to be"),
        ("annex.deb\n".to_owned(), "line 1 has to be"),
        (good.repeat(1_001), "it names 1001 files; at most 1000 are read"),
        (good.repeat(20_000), "it is larger than 1048576 bytes"),
    ] {
        release.write_signed("SHA256SUMS", &list)?;
        check(&release.verify("SHA256SUMS")?, 3, &["SHA256SUMS is no list of checksums: ", reason]);
    }
    release.write_signed("SHA256SUMS", "")?;
    check(&release.verify("SHA256SUMS")?, 1, &["no file that "]);
    Ok(())
}

#[test]
fn a_text_that_is_no_file_is_read_as_a_reference() -> Result<()> {
    let release = Release::new()?;
    check(&verify(&release.path("other"), &release.key)?, 2, &["no file has this name, and ", "is no reference"]);
    let nobody = format!("{}/acme/clock", free_address()?);
    let guessed = verify(Path::new(&nobody), &release.key)?;
    check(&guessed, 4, &[&format!("no file has this name, so it was read as the reference oci://{nobody}")]);
    check(&sign(Path::new(&nobody), &release.key)?, 4, &["no file has this name, so "]);
    check(&sign(Path::new("oci://registry.example"), &release.key)?, 2, &["is no reference: it has no host and path"]);
    let list = release.path("SHA256SUMS").display().to_string();
    let key = release.key.with_extension("pub").display().to_string();
    check(&run(["verify", &list, "--key", &key, "--key", &key])?, 2, &["a file has one signature"]);
    check(&run(["verify", &list, "--key", &key, "--plain-http"])?, 2, &["--plain-http and --ca-file are for"]);
    Ok(())
}
