//! Joins the data segments of a core module.
//!
//! Go's compiler omits each run of zeros, so that even a small program has 43,000 segments. Each segment has a header
//! in the file, and hosts limit their number.

use std::ops::Range;

use anyhow::{Context, Result};
use wasm_encoder::{ConstExpr, CustomSection, DataCountSection, DataSection, Module, RawSection};
use wasmparser::{BinaryReader, DataKind, DataSectionReader, Operator, Parser, Payload, TypeRef};

/// The longest run of zeros that is written between two segments. Longer runs stay omitted.
const LARGEST_GAP: usize = 256;
/// The id of the subsection for names of data segments in the custom section `name`.
const DATA_NAMES: u8 = 9;

struct Segment<'a> {
    start: usize,
    data: &'a [u8],
}

/// Joins the data segments of a core module.
///
/// The module is returned unchanged if its segments cannot be moved safely:
///
/// * A segment is passive, has a computed offset, or is for another memory than the first.
/// * The code refers to segments by number.
/// * The memory is imported, and so may not start with zeros.
///
/// # Errors
/// When the module is not a core module in the binary format.
pub(super) fn join(module: &[u8]) -> Result<Vec<u8>> {
    let Some(segments) = joinable(module)? else { return Ok(module.to_vec()) };
    let regions = regions(&segments);
    if regions.len() >= segments.len() {
        return Ok(module.to_vec());
    }
    let count = u32::try_from(regions.len())?;
    let data = encode(&segments, &regions)?;
    let mut joined = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        match &payload {
            Payload::DataSection(_) => {
                joined.section(&data);
            }
            Payload::DataCountSection { .. } => {
                joined.section(&DataCountSection { count });
            }
            Payload::CustomSection(section) if section.name() == "name" => {
                let data = without_data_names(section.data())?;
                joined.section(&CustomSection { name: "name".into(), data: data.into() });
            }
            _ => {
                if let Some((id, range)) = payload.as_section() {
                    let data = bytes(module, range)?;
                    joined.section(&RawSection { id, data });
                }
            }
        }
    }
    Ok(joined.finish())
}

fn bytes(module: &[u8], range: Range<u64>) -> Result<&[u8]> {
    let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
    module.get(range).context("a section is cut off")
}

/// The data segments in the order of the module; `None` if they must stay unchanged.
fn joinable(module: &[u8]) -> Result<Option<Vec<Segment<'_>>>> {
    let mut found = None;
    let mut has_data_count = false;
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::Version { encoding, .. } => {
                anyhow::ensure!(encoding == wasmparser::Encoding::Module, "it is not a core module");
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if matches!(import?.ty, TypeRef::Memory(_)) {
                        return Ok(None);
                    }
                }
            }
            // Only in a module with this section may code speak of segments.
            Payload::DataCountSection { .. } => has_data_count = true,
            Payload::CodeSectionEntry(body) if has_data_count => {
                for operator in body.get_operators_reader()? {
                    if names_segment(&operator?) {
                        return Ok(None);
                    }
                }
            }
            Payload::DataSection(section) => found = segments(section)?,
            _ => {}
        }
    }
    Ok(found)
}

fn names_segment(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::ArrayNewData { .. }
            | Operator::ArrayInitData { .. }
    )
}

fn segments(section: DataSectionReader<'_>) -> Result<Option<Vec<Segment<'_>>>> {
    let mut segments = Vec::new();
    for segment in section {
        let segment = segment?;
        let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else { return Ok(None) };
        let mut operators = offset_expr.get_operators_reader();
        let (Operator::I32Const { value }, Operator::End) = (operators.read()?, operators.read()?) else {
            return Ok(None);
        };
        segments.push(Segment { start: usize::try_from(value.cast_unsigned())?, data: segment.data });
    }
    Ok(Some(segments))
}

/// The address ranges of the joined segments, in ascending order. The gaps between them are larger than
/// [`LARGEST_GAP`].
fn regions(segments: &[Segment<'_>]) -> Vec<Range<usize>> {
    let mut places = segments.iter().map(Segment::place).collect::<Vec<_>>();
    places.sort_by_key(|place| place.start);
    let mut regions = Vec::<Range<usize>>::new();
    for place in places {
        match regions.last_mut() {
            Some(last) if place.start <= last.end.saturating_add(LARGEST_GAP) => last.end = last.end.max(place.end),
            _ => regions.push(place),
        }
    }
    regions
}

impl Segment<'_> {
    fn place(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.data.len())
    }
}

fn encode(segments: &[Segment<'_>], regions: &[Range<usize>]) -> Result<DataSection> {
    let mut contents = regions.iter().map(|region| vec![0; region.len()]).collect::<Vec<_>>();
    // In the order of the module, in which a later segment overwrites an earlier one.
    for segment in segments {
        let next = regions.partition_point(|region| region.start <= segment.start);
        let index = next.checked_sub(1).context("a segment lies in no region")?;
        let first = regions.get(index).map_or(0, |region| region.start);
        let place = segment.start - first..segment.place().end - first;
        let target = contents.get_mut(index).and_then(|bytes| bytes.get_mut(place));
        target.context("a segment ends beyond its region")?.copy_from_slice(segment.data);
    }
    let mut section = DataSection::new();
    for (region, data) in regions.iter().zip(contents) {
        let start = u32::try_from(region.start)?.cast_signed();
        section.active(0, &ConstExpr::i32_const(start), data);
    }
    Ok(section)
}

/// The custom section `name` without the names of data segments, whose numbers have changed.
fn without_data_names(section: &[u8]) -> Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut reader = BinaryReader::new(section, 0);
    while !reader.eof() {
        let id = reader.read_u8()?;
        let size = reader.read_var_u32()?;
        let names = reader.read_bytes(usize::try_from(size)?)?;
        if id != DATA_NAMES {
            kept.push(id);
            wasm_encoder::Encode::encode(names, &mut kept);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use wasm_encoder::SectionId;

    use super::*;

    fn segments_of(module: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut found = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            if let Payload::DataSection(section) = payload.unwrap() {
                let segments = segments(section).unwrap().unwrap();
                found.extend(segments.iter().map(|segment| (segment.start, segment.data.to_vec())));
            }
        }
        found
    }

    /// The content of a memory of one page after its segments are loaded.
    fn image(module: &[u8]) -> Vec<u8> {
        let mut memory = vec![0; 1 << 16];
        for (start, data) in segments_of(module) {
            memory[start..start + data.len()].copy_from_slice(&data);
        }
        memory
    }

    fn joined(text: &str) -> Vec<u8> {
        let module = wat::parse_str(text).unwrap();
        let joined = join(&module).unwrap();
        wasmparser::validate(&joined).unwrap();
        assert_eq!(image(&joined), image(&module));
        assert_eq!(join(&joined).unwrap(), joined);
        joined
    }

    fn check_untouched(text: &str) {
        let module = wat::parse_str(text).unwrap();
        assert_eq!(join(&module).unwrap(), module);
    }

    #[test]
    fn near_segments_become_one_with_zeros_between() {
        let joined = joined(r#"(module (memory 1) (data (i32.const 8) "ab") (data (i32.const 12) "cd"))"#);
        assert_eq!(segments_of(&joined), [(8, b"ab\0\0cd".to_vec())]);
    }

    #[test]
    fn far_segments_stay_apart() {
        let joined = joined(
            r#"(module (memory 1) (data (i32.const 40000) "c") (data (i32.const 8) "a") (data (i32.const 9) "b"))"#,
        );
        assert_eq!(segments_of(&joined), [(8, b"ab".to_vec()), (40000, b"c".to_vec())]);
    }

    #[test]
    fn a_later_segment_overwrites_an_earlier_one() {
        let joined = joined(
            r#"(module (memory 1) (data (i32.const 4) "xyz") (data (i32.const 3) "abc") (data (i32.const 5) "-"))"#,
        );
        assert_eq!(segments_of(&joined), [(3, b"ab-z".to_vec())]);
    }

    #[test]
    fn a_segment_within_another_one_does_not_shorten_it() {
        let joined = joined(
            r#"(module (memory 1) (data (i32.const 0) "0123456789") (data (i32.const 2) "ab") (data (i32.const 20) "c"))"#,
        );
        assert_eq!(segments_of(&joined), [(0, b"01ab456789\0\0\0\0\0\0\0\0\0\0c".to_vec())]);
    }

    #[test]
    fn an_empty_segment_still_has_its_place() {
        let joined = joined(r#"(module (memory 1) (data (i32.const 65530) "a") (data (i32.const 65536) ""))"#);
        assert_eq!(segments_of(&joined), [(65530, b"a\0\0\0\0\0".to_vec())]);
    }

    #[test]
    fn places_in_the_upper_half_of_the_address_space_are_not_negative() {
        let module = wat::parse_str(
            r#"(module (memory 65536) (data (i32.const -8) "a") (data (i32.const -6) "b") (data (i32.const 1) "c"))"#,
        );
        let joined = join(&module.unwrap()).unwrap();
        assert_eq!(segments_of(&joined), [(1, b"c".to_vec()), (0xffff_fff8, b"a\0b".to_vec())]);
    }

    #[test]
    fn everything_else_stays_byte_for_byte() {
        let text = r#"(module (memory 1) (func (export "f") (result i32) (i32.const 1)) (@custom "mine" (after data) "x") DATA)"#;
        let one = wat::parse_str(text.replace("DATA", r#"(data (i32.const 0) "a\00\00b")"#)).unwrap();
        let joined = joined(&text.replace("DATA", r#"(data (i32.const 0) "a") (data (i32.const 3) "b")"#));
        assert_eq!(joined, one);
    }

    #[test]
    fn names_of_segments_go_and_others_stay() {
        let joined =
            joined(r#"(module $m (memory 1) (func $f) (data $one (i32.const 0) "a") (data $two (i32.const 1) "b"))"#);
        let has = |name: &str| joined.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        assert!(has("f") && has("m") && !has("one") && !has("two"));
    }

    #[test]
    fn the_count_of_segments_follows() {
        let code = r#"(func (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)))"#;
        let mut module = Module::new();
        let text = format!(r#"(module (memory 1) {code} (data (i32.const 0) "a") (data (i32.const 1) "b"))"#);
        let plain = wat::parse_str(text).unwrap();
        for payload in Parser::new(0).parse_all(&plain) {
            let payload = payload.unwrap();
            let Some((id, range)) = payload.as_section() else { continue };
            if id == SectionId::Code as u8 {
                module.section(&DataCountSection { count: 2 });
            }
            module.section(&RawSection { id, data: bytes(&plain, range).unwrap() });
        }
        let joined = join(&module.finish()).unwrap();
        wasmparser::validate(&joined).unwrap();
        assert_eq!(segments_of(&joined).len(), 1);
    }

    #[test]
    fn segments_that_code_names_stay() {
        let segments = r#"(data $a (i32.const 0) "a") (data (i32.const 1) "b")"#;
        check_untouched(&format!("(module (memory 1) (func (data.drop $a)) {segments})"));
        check_untouched(&format!(
            "(module (memory 1) (func (memory.init $a (i32.const 0) (i32.const 0) (i32.const 0))) {segments})"
        ));
    }

    #[test]
    fn segments_whose_place_or_surroundings_are_not_known_stay() {
        check_untouched(r#"(module (memory 1) (data (i32.const 0) "a") (data (i32.const 1) "b") (data "c"))"#);
        check_untouched(
            r#"(module (import "m" "g" (global i32)) (memory 1) (data (global.get 0) "a") (data (i32.const 1) "b"))"#,
        );
        check_untouched(r#"(module (import "m" "m" (memory 1)) (data (i32.const 0) "a") (data (i32.const 1) "b"))"#);
        check_untouched(
            r#"(module (memory 1) (memory 1) (data (memory 1) (i32.const 0) "a") (data (i32.const 1) "b"))"#,
        );
        check_untouched(
            r#"(module (memory 1) (data (i32.add (i32.const 0) (i32.const 4)) "a") (data (i32.const 1) "b"))"#,
        );
    }

    #[test]
    fn a_module_without_segments_stays() {
        check_untouched("(module (memory 1) (func))");
    }

    #[test]
    fn what_is_no_core_module_is_an_error() {
        assert!(join(b"not WebAssembly").is_err());
        assert!(join(&wat::parse_str("(component)").unwrap()).is_err());
    }
}
