//! Archives with components for machines without a network.

use std::fs::{self, File};
use std::path::Path;

use annex_registry::{Layout, LayoutError, LayoutWriter, Pulled, Reference};

use crate::fake::FakeRegistry;
use crate::{BUNDLE, COMPONENT, SBOM, client, push, reference};

async fn pulled() -> (Reference, Pulled) {
    let registry = FakeRegistry::start().await;
    let reference = reference(&registry);
    push(&client(), &reference).await;
    (reference.clone(), client().pull(&reference, &()).await.expect("pulled"))
}

fn save(file: &Path, reference: &Reference, component: &Pulled, signatures: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = LayoutWriter::new(File::create(file).expect("a file")).expect("begun");
    writer.add(reference, component, signatures).expect("added");
    writer.finish().expect("ended");
    fs::read(file).expect("read")
}

fn open(file: &Path) -> Result<Layout, LayoutError> {
    Layout::open(File::open(file).expect("a file"))
}

#[tokio::test]
async fn an_archive_has_the_component_and_its_signatures() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("components.tar");
    let (reference, component) = pulled().await;
    let signatures = [BUNDLE.to_vec(), b"{}".to_vec()];
    let archive = save(&file, &reference, &component, &signatures);
    assert_eq!(save(&file, &reference, &component, &signatures), archive, "it depends on its content alone");
    let mut layout = open(&file).expect("a layout");
    let components = layout.components().expect("references");
    assert_eq!(components, [(reference, component.manifest_digest.clone())]);
    let (found, mut bundles) = layout.read_component(&component.manifest_digest).expect("a component");
    bundles.sort();
    assert_eq!((found, bundles.as_slice()), (component, signatures.as_slice()));
}

#[tokio::test]
async fn an_archive_has_sboms_for_other_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("components.tar");
    let (reference, component) = pulled().await;
    let mut writer = LayoutWriter::new(File::create(&file).expect("a file")).expect("begun");
    writer.add(&reference, &component, &[BUNDLE.to_vec()]).expect("added");
    writer.add_sbom(&component, SBOM).expect("added");
    writer.finish().expect("ended");
    let archive = fs::read(&file).expect("read");
    for expected in [SBOM, b"\"artifactType\":\"application/vnd.cyclonedx+json\""] {
        assert!(
            archive.windows(expected.len()).any(|found| found == expected),
            "{}",
            String::from_utf8_lossy(expected)
        );
    }
    let mut layout = open(&file).expect("a layout");
    assert_eq!(layout.components().expect("references").len(), 1);
    assert_eq!(layout.read_signatures(&component.manifest_digest).expect("signatures"), [BUNDLE]);
}

#[tokio::test]
async fn an_archive_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("components.tar");
    let (reference, component) = pulled().await;
    let archive = save(&file, &reference, &component, &[BUNDLE.to_vec()]);
    // Of the same length, so that the archive stays one.
    let blank = vec![b' '; BUNDLE.len()];
    for (old, new) in [(COMPONENT, &b"\0asm\x0d\0\x01\0 and further byteZ"[..]), (BUNDLE, blank.as_slice())] {
        let changed = replaced(&archive, old, new);
        fs::write(&file, changed).expect("written");
        let mut layout = open(&file).expect("a layout");
        let refused = layout.read_component(&component.manifest_digest).expect_err("changed");
        assert!(matches!(refused, LayoutError::Digest { .. }), "{refused}");
    }
    fs::write(&file, &archive[..archive.len() / 2]).expect("written");
    let is_whole = open(&file).and_then(|mut layout| layout.read_component(&component.manifest_digest));
    assert!(is_whole.is_err(), "half of an archive");
    fs::write(&file, "no archive").expect("written");
    assert!(open(&file).is_err());
    let mut empty = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    empty.append_data(&mut header, "a", &b""[..]).expect("added");
    fs::write(&file, empty.into_inner().expect("ended")).expect("written");
    assert!(matches!(open(&file).err(), Some(LayoutError::Missing(name)) if name == "oci-layout"));
}

#[tokio::test]
async fn an_entry_that_gives_another_one_a_name_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("components.tar");
    let (reference, component) = pulled().await;
    let archive = save(&file, &reference, &component, &[]);
    let descriptions =
        [(tar::EntryType::XHeader, &b"18 path=elsewhere\n"[..]), (tar::EntryType::GNULongName, &b"elsewhere\0"[..])];
    for (kind, content) in descriptions {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(u64::try_from(content.len()).expect("a size"));
        header.set_path("described").expect("a path");
        header.set_cksum();
        let mut described = tar::Builder::new(Vec::new());
        described.append(&header, content).expect("added");
        let described = described.into_inner().expect("ended");
        // A block for the header, and one for the content.
        fs::write(&file, [&described[..1_024], archive.as_slice()].concat()).expect("written");
        let mut layout = open(&file).expect("a layout");
        assert!(layout.read_component(&component.manifest_digest).is_ok(), "{kind:?}");
    }
}

#[tokio::test]
async fn what_an_archive_names_again_is_not_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("components.tar");
    let (reference, component) = pulled().await;
    let mut writer = LayoutWriter::new(File::create(&file).expect("a file")).expect("begun");
    for _ in 0..2 {
        writer.add(&reference, &component, &[BUNDLE.to_vec()]).expect("added");
    }
    writer.finish().expect("ended");
    let mut layout = open(&file).expect("a layout");
    assert_eq!(layout.components().expect("references").len(), 1);
    assert_eq!(layout.read_signatures(&component.manifest_digest).expect("signatures"), [BUNDLE]);

    let mut writer = LayoutWriter::new(File::create(&file).expect("a file")).expect("begun");
    for number in 0..=1_000 {
        let name: Reference = format!("oci://registry.example/acme/redact:{number}").parse().expect("a reference");
        writer.add(&name, &component, &[]).expect("added");
    }
    writer.finish().expect("ended");
    assert!(matches!(open(&file).expect("a layout").components(), Err(LayoutError::TooManyComponents)));
}

fn replaced(archive: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let position = archive.windows(old.len()).position(|window| window == old).expect("the content");
    [&archive[..position], new, &archive[position + old.len()..]].concat()
}
