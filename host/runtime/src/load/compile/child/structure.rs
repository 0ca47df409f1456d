//! Limits on the structure of a component, checked before it is compiled.
//!
//! Time and memory of the compiler grow with the number of parts, and faster than linearly with the size of a
//! function. The limits leave room for interpreters compiled to WebAssembly.

use wasmparser::{BinaryReaderError, Data, DataKind, FunctionBody, MemoryType, Operator, Parser, Payload};

use crate::confinement::engine::{MEMORY_CEILING, TABLE_CEILING};
use crate::error::LoadError;

mod arity;
mod depth;

use arity::{BranchValues, Signatures};

/// Most levels of nested components.
const MAX_DEPTH: u64 = 10;
const MAX_COMPONENTS: u64 = 200;
const MAX_MODULES: u64 = 100;
/// Most instances of modules and of components in total.
const MAX_INSTANCES: u64 = 2_000;
const MAX_TYPES: u64 = 20_000;
const MAX_FUNCTIONS: u64 = 100_000;
/// Most data segments. The Go compiler creates one per piece of data: 43,000 in a small program.
const MAX_DATA_SEGMENTS: u64 = 100_000;
/// Most data segments with a computed offset. Such segments become code that the limits on functions do not cover.
const MAX_COMPUTED_SEGMENTS: u64 = 20_000;
const MAX_ELEMENT_SEGMENTS: u64 = 20_000;
const MAX_GLOBALS: u64 = 20_000;
/// Most canonical functions. Each may become an adapter with code of its own.
const MAX_CANONICALS: u64 = 1_000;
const MAX_ALIASES: u64 = 10_000;
/// Most bytes of one function. CPython's interpreter has a function of 427 KB.
const MAX_FUNCTION_BYTES: u64 = 512 << 10;
/// Most locals of one function, including its used parameters.
const MAX_LOCALS: u64 = 5_000;
/// Most levels of nested blocks in one function.
const MAX_NESTING: u64 = 5_000;
/// Largest product of locals and blocks in one function. The compiler tracks each local in each block where its value
/// may differ.
const MAX_MERGES: u64 = 2_000_000;
/// Largest sum of the products of locals and blocks over all functions.
const MAX_ALL_MERGES: u64 = 50_000_000;
/// Most values that the blocks, branches and calls of one function pass. Compilers pass few values, and each value has
/// been pushed by an instruction.
const MAX_PASSED: u64 = 100_000;
/// Most values that the blocks, branches and calls of all functions pass.
const MAX_ALL_PASSED: u64 = 10_000_000;
/// Most imports and exports of core modules and components in total.
const MAX_NAMES: u64 = 50_000;

/// Counts of parts in the whole component, including nested components.
#[derive(Default)]
struct Parts {
    components: u64,
    modules: u64,
    instances: u64,
    types: u64,
    functions: u64,
    data_segments: u64,
    computed_segments: u64,
    element_segments: u64,
    globals: u64,
    canonicals: u64,
    aliases: u64,
    names: u64,
}

/// Sums of the compiler's work over all functions.
#[derive(Default)]
struct Work {
    merges: u64,
    passed: u64,
}

impl From<BinaryReaderError> for LoadError {
    fn from(error: BinaryReaderError) -> Self {
        Self::NotAComponent { reason: error.to_string() }
    }
}

/// Checks the structure of a component file.
///
/// # Errors
/// [`LoadError::TooComplex`] with the first limit that is exceeded.
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let mut parts = Parts::default();
    let mut work = Work::default();
    let mut depth = 0_u64;
    // Modules cannot be nested, so at most one is open.
    let mut signatures = Signatures::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                depth += 1;
                signatures = Signatures::default();
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        // Checked after each payload, so that reading stops at the first exceeded limit.
        at_most("levels of components in components", depth, MAX_DEPTH)?;
        parts.count(&payload)?;
        parts.count_computed(&payload)?;
        if let Payload::ComponentTypeSection(section) = &payload {
            depth::check(section, bytes)?;
        }
        check_sizes(&payload)?;
        signatures.add(&payload)?;
        if let Payload::CodeSectionEntry(function) = &payload {
            work.add(&check_function(function, signatures.next_body())?)?;
        }
    }
    Ok(())
}

impl Work {
    fn add(&mut self, function: &Self) -> Result<(), LoadError> {
        self.merges = self.merges.saturating_add(function.merges);
        self.passed = self.passed.saturating_add(function.passed);
        at_most("locals times blocks over all functions", self.merges, MAX_ALL_MERGES)?;
        at_most("values passed by blocks, branches and calls over all functions", self.passed, MAX_ALL_PASSED)
    }
}

impl Parts {
    fn count(&mut self, payload: &Payload<'_>) -> Result<(), LoadError> {
        let (part, added, what, limit) = match payload {
            Payload::ComponentSection { .. } => (&mut self.components, 1, "components inside it", MAX_COMPONENTS),
            Payload::ModuleSection { .. } => (&mut self.modules, 1, "core modules", MAX_MODULES),
            Payload::InstanceSection(section) => (&mut self.instances, section.count(), "instances", MAX_INSTANCES),
            Payload::ComponentInstanceSection(section) => {
                (&mut self.instances, section.count(), "instances", MAX_INSTANCES)
            }
            Payload::TypeSection(section) => (&mut self.types, section.count(), "types", MAX_TYPES),
            Payload::CoreTypeSection(section) => (&mut self.types, section.count(), "types", MAX_TYPES),
            Payload::ComponentTypeSection(section) => (&mut self.types, section.count(), "types", MAX_TYPES),
            Payload::FunctionSection(section) => (&mut self.functions, section.count(), "functions", MAX_FUNCTIONS),
            Payload::DataSection(section) => {
                (&mut self.data_segments, section.count(), "data segments", MAX_DATA_SEGMENTS)
            }
            Payload::ElementSection(section) => {
                (&mut self.element_segments, section.count(), "element segments", MAX_ELEMENT_SEGMENTS)
            }
            Payload::ComponentCanonicalSection(section) => {
                (&mut self.canonicals, section.count(), "canonical functions", MAX_CANONICALS)
            }
            Payload::ComponentAliasSection(section) => (&mut self.aliases, section.count(), "aliases", MAX_ALIASES),
            Payload::ImportSection(section) => (&mut self.names, section.count(), "imports and exports", MAX_NAMES),
            Payload::ExportSection(section) => (&mut self.names, section.count(), "imports and exports", MAX_NAMES),
            Payload::ComponentImportSection(section) => {
                (&mut self.names, section.count(), "imports and exports", MAX_NAMES)
            }
            Payload::ComponentExportSection(section) => {
                (&mut self.names, section.count(), "imports and exports", MAX_NAMES)
            }
            Payload::GlobalSection(section) => (&mut self.globals, section.count(), "globals", MAX_GLOBALS),
            _ => return Ok(()),
        };
        *part += u64::from(added);
        at_most(what, *part, limit)
    }

    fn count_computed(&mut self, payload: &Payload<'_>) -> Result<(), LoadError> {
        let Payload::DataSection(section) = payload else { return Ok(()) };
        // The clone is a second reader of the same bytes.
        for segment in section.clone() {
            self.computed_segments += u64::from(!lies_at_a_constant(&segment?));
            at_most("data segments at computed places", self.computed_segments, MAX_COMPUTED_SEGMENTS)?;
        }
        Ok(())
    }
}

/// True for a segment that becomes part of a memory's initial image. Other segments become code that runs at each
/// instantiation.
fn lies_at_a_constant(segment: &Data<'_>) -> bool {
    let DataKind::Active { offset_expr, .. } = &segment.kind else { return true };
    let mut operators = offset_expr.get_operators_reader();
    matches!(operators.read(), Ok(Operator::I32Const { .. })) && matches!(operators.read(), Ok(Operator::End))
}

fn check_sizes(payload: &Payload<'_>) -> Result<(), LoadError> {
    match payload {
        Payload::MemorySection(section) => section.clone().into_iter().try_for_each(|memory| {
            let what = "bytes of memory to begin with";
            let limit = wide(MEMORY_CEILING);
            at_most(what, initial_bytes(&memory?), limit)
        }),
        Payload::TableSection(section) => section.clone().into_iter().try_for_each(|table| {
            let what = "elements of a table to begin with";
            let limit = wide(TABLE_CEILING);
            at_most(what, table?.ty.initial, limit)
        }),
        _ => Ok(()),
    }
}

fn initial_bytes(memory: &MemoryType) -> u64 {
    // The page size is not validated yet, so the shift is limited here.
    memory.initial.saturating_mul(1 << memory.page_size_log2.unwrap_or(16).min(16))
}

fn check_function(function: &FunctionBody<'_>, mut passing: BranchValues<'_>) -> Result<Work, LoadError> {
    let range = function.range();
    at_most("bytes in one function", wide(range.end.saturating_sub(range.start)), MAX_FUNCTION_BYTES)?;
    let mut locals = 0_u64;
    for group in function.get_locals_reader()? {
        locals = locals.saturating_add(group?.0.into());
    }
    at_most("locals in one function", locals, MAX_LOCALS)?;
    let mut nesting = 0_u64;
    let mut blocks = 0_u64;
    for operator in function.get_operators_reader()? {
        let operator = operator?;
        passing.add(&operator)?;
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                nesting += 1;
                blocks += 1;
            }
            Operator::End => nesting = nesting.saturating_sub(1),
            // Parameters are not declared as locals, but count when used.
            Operator::LocalGet { local_index }
            | Operator::LocalSet { local_index }
            | Operator::LocalTee { local_index } => locals = locals.max(u64::from(local_index) + 1),
            _ => {}
        }
        // Checked after each operator, so that reading stops early.
        at_most("blocks within blocks", nesting, MAX_NESTING)?;
        at_most("values passed by blocks, branches and calls in one function", passing.passed, MAX_PASSED)?;
    }
    let merges = locals.saturating_mul(blocks);
    at_most("locals times blocks in one function", merges, MAX_MERGES)?;
    Ok(Work { merges, passed: passing.passed })
}

/// Fails if `found` exceeds `limit`.
pub(super) fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), LoadError> {
    if found > limit { Err(LoadError::TooComplex { what: what.into(), found, limit }) } else { Ok(()) }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
