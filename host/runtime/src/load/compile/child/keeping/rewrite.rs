//! Adds functions to a component, by which the host resets its instances. Existing content stays byte for byte: added
//! items have indices after the existing ones, so that no code of the component can refer to them.

use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, CodeSection, Component, ComponentAliasSection,
    ComponentExportKind, ComponentExportSection, ComponentTypeSection, ComponentValType, ConstExpr, Encode, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, MemArg, PrimitiveValType, RawSection,
    TypeSection,
};
use wasmparser::types::Types;
use wasmparser::{BinaryReader, BinaryReaderError, ValType};

use super::{Keepable, Module, Plan};
use crate::load::keep_functions::{KeepFunctions, PREFIX};

/// Size of the header in bytes: magic number and version.
const HEADER: usize = 8;
/// Id of the component section that holds a core module.
const CORE_MODULE: u8 = 1;

const TYPES: u8 = 1;
const FUNCTIONS: u8 = 3;
const GLOBALS: u8 = 6;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
/// Order of the sections of a core module. Custom sections have id 0 and may be anywhere.
const ORDER: [u8; 13] = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11];

/// Adds functions to the modules of a component, and exports at its end.
pub(super) fn component(bytes: &[u8], plan: &Plan, types: &Types) -> Result<Keepable, BinaryReaderError> {
    let mut component = Component::default();
    let mut modules = plan.modules.iter().enumerate();
    for (id, data) in sections(bytes)? {
        match (id, modules.len()) {
            (CORE_MODULE, 1..) => {
                let Some((number, module)) = modules.next() else { continue };
                let is_made = plan.instances.iter().flatten().any(|made| usize::try_from(*made) == Ok(number));
                let data = if is_made { self::module(data, module)? } else { data.to_vec() };
                component.section(&RawSection { id, data: &data });
            }
            _ => {
                component.section(&RawSection { id, data });
            }
        }
    }
    let functions = add_exports(&mut component, plan, types);
    Ok(Keepable { bytes: component.finish(), functions })
}

fn sections(bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, BinaryReaderError> {
    let mut reader = BinaryReader::new(bytes, 0);
    reader.read_bytes(HEADER)?;
    let mut sections = Vec::new();
    while !reader.eof() {
        let id = reader.read_u8()?;
        let size = usize::try_from(reader.read_var_u32()?).unwrap_or(usize::MAX);
        sections.push((id, reader.read_bytes(size)?));
    }
    Ok(sections)
}

/// A core module under construction.
struct Sections {
    sections: Vec<(u8, Vec<u8>)>,
}

impl Sections {
    /// Appends entries to the section with this id, or creates the section.
    fn append(&mut self, id: u8, section: &impl Encode) -> Result<(), BinaryReaderError> {
        let mut encoded = Vec::new();
        section.encode(&mut encoded);
        // An encoded section begins with its size.
        let mut reader = BinaryReader::new(&encoded, 0);
        let size = usize::try_from(reader.read_var_u32()?).unwrap_or(usize::MAX);
        let added = reader.read_bytes(size)?;
        match self.sections.iter_mut().find(|(other, _)| *other == id) {
            Some((_, data)) => *data = joined(data, added)?,
            None => {
                let place = |id: u8| ORDER.iter().position(|other| *other == id);
                let after = self.sections.iter().position(|(other, _)| place(*other) > place(id));
                self.sections.insert(after.unwrap_or(self.sections.len()), (id, added.to_vec()));
            }
        }
        Ok(())
    }
}

/// Concatenates two encoded lists. Each is a count followed by its entries.
fn joined(first: &[u8], second: &[u8]) -> Result<Vec<u8>, BinaryReaderError> {
    let mut first = BinaryReader::new(first, 0);
    let mut second = BinaryReader::new(second, 0);
    let count = first.read_var_u32()?.saturating_add(second.read_var_u32()?);
    let mut joined = Vec::new();
    count.encode(&mut joined);
    for mut list in [first, second] {
        let bytes = list.bytes_remaining();
        joined.extend_from_slice(list.read_bytes(bytes)?);
    }
    Ok(joined)
}

/// Names of the functions that are added to a module.
const SAVE: &str = "annex-keep:save";
const RESET: &str = "annex-keep:reset";

fn memory_name(number: u32) -> String {
    format!("{PREFIX}:memory-{number}")
}

fn all_of_memory_name(number: u32) -> String {
    format!("{PREFIX}:all-of-memory-{number}")
}

fn put_back_name(number: u32) -> String {
    format!("{PREFIX}:put-back-{number}")
}

/// Adds to a module: shadows of its mutable globals, functions that save and reset the globals, and one function per
/// memory that returns the whole memory.
fn module(bytes: &[u8], module: &Module) -> Result<Vec<u8>, BinaryReaderError> {
    let mutable: Vec<(u32, ValType)> = module.mutable().collect();
    let parts = sections(bytes)?.into_iter().map(|(id, data)| (id, data.to_vec())).collect();
    let mut parts = Sections { sections: parts };
    let mut added = ModuleAdditions::new(module);
    if !mutable.is_empty() {
        let shadows: Vec<(u32, u32)> =
            mutable.iter().map(|(global, ty)| (*global, added.global(encoded_type(*ty)))).collect();
        added.copy_globals(SAVE, shadows.iter().copied());
        added.copy_globals(RESET, shadows.iter().map(|(global, shadow)| (*shadow, *global)));
    }
    for number in 0..module.memories {
        added.memory(number, module.imported_memories + number);
    }
    added.finish(&mut parts)?;
    let mut encoded = bytes.get(..HEADER).unwrap_or_default().to_vec();
    for (id, data) in &parts.sections {
        encoded.push(*id);
        data.as_slice().encode(&mut encoded);
    }
    Ok(encoded)
}

fn encoded_type(ty: ValType) -> wasm_encoder::ValType {
    match ty {
        ValType::I32 => wasm_encoder::ValType::I32,
        ValType::I64 => wasm_encoder::ValType::I64,
        ValType::F32 => wasm_encoder::ValType::F32,
        ValType::F64 => wasm_encoder::ValType::F64,
        ValType::V128 => wasm_encoder::ValType::V128,
        // `Plan` has refused these.
        ValType::Ref(_) => wasm_encoder::ValType::FUNCREF,
    }
}

/// The additions to one core module.
struct ModuleAdditions {
    types: TypeSection,
    functions: FunctionSection,
    globals: GlobalSection,
    exports: ExportSection,
    code: CodeSection,
    first_type: u32,
    next_function: u32,
    next_global: u32,
}

impl ModuleAdditions {
    fn new(module: &Module) -> Self {
        let mut types = TypeSection::new();
        let i32 = wasm_encoder::ValType::I32;
        types.ty().function([], []);
        types.ty().function([], [i32]);
        types.ty().function([i32], []);
        Self {
            types,
            functions: FunctionSection::new(),
            globals: GlobalSection::new(),
            exports: ExportSection::new(),
            code: CodeSection::new(),
            first_type: module.types,
            next_function: module.imported_functions + module.functions,
            next_global: module.imported_globals + u32::try_from(module.globals.len()).unwrap_or(u32::MAX),
        }
    }

    /// Adds a global that only the added code uses.
    fn global(&mut self, val_type: wasm_encoder::ValType) -> u32 {
        let zero = match val_type {
            wasm_encoder::ValType::I64 => ConstExpr::i64_const(0),
            wasm_encoder::ValType::F32 => ConstExpr::f32_const(0.0_f32.into()),
            wasm_encoder::ValType::F64 => ConstExpr::f64_const(0.0_f64.into()),
            wasm_encoder::ValType::V128 => ConstExpr::v128_const(0),
            _ => ConstExpr::i32_const(0),
        };
        self.globals.global(GlobalType { val_type, mutable: true, shared: false }, &zero);
        let index = self.next_global;
        self.next_global += 1;
        index
    }

    /// Adds an exported function. `ty` is 0 for a function without parameters and results, 1 for one with a result, and
    /// 2 for one with a parameter.
    fn function(&mut self, name: &str, ty: u32, instructions: impl FnOnce(&mut wasm_encoder::InstructionSink<'_>)) {
        let mut function = Function::new([]);
        instructions(&mut function.instructions());
        function.instructions().end();
        self.functions.function(self.first_type + ty);
        self.code.function(&function);
        self.exports.export(name, ExportKind::Func, self.next_function);
        self.next_function += 1;
    }

    fn copy_globals(&mut self, name: &str, pairs: impl Iterator<Item = (u32, u32)>) {
        self.function(name, 0, |code| {
            for (from, to) in pairs {
                code.global_get(from).global_set(to);
            }
        });
    }

    /// Adds a function that returns the whole memory as a list, and its post-return function.
    ///
    /// The canonical ABI returns a list through a pointer to its address and length, which must lie in the memory
    /// itself. So the first 8 bytes are saved in a global and restored afterwards.
    fn memory(&mut self, number: u32, index: u32) {
        let aside = self.global(wasm_encoder::ValType::I64);
        let at = |offset| MemArg { offset, align: 2, memory_index: index };
        self.exports.export(&memory_name(number), ExportKind::Memory, index);
        self.function(&all_of_memory_name(number), 1, |code| {
            code.i32_const(0).i64_load(at(0)).global_set(aside);
            code.i32_const(0).i32_const(0).i32_store(at(0));
            // The size is in pages of 64 KiB.
            code.i32_const(0).memory_size(index).i32_const(16).i32_shl().i32_store(at(4));
            code.i32_const(0);
        });
        self.function(&put_back_name(number), 2, |code| {
            code.i32_const(0).global_get(aside).i64_store(at(0));
        });
    }

    fn finish(self, parts: &mut Sections) -> Result<(), BinaryReaderError> {
        if self.functions.is_empty() {
            return Ok(());
        }
        parts.append(TYPES, &self.types)?;
        parts.append(FUNCTIONS, &self.functions)?;
        parts.append(GLOBALS, &self.globals)?;
        parts.append(EXPORTS, &self.exports)?;
        parts.append(CODE, &self.code)
    }
}

/// Exports the added functions of all instances from the component.
fn add_exports(component: &mut Component, plan: &Plan, types: &Types) -> KeepFunctions {
    let types = types.as_ref();
    let mut ends = Ends {
        aliases: ComponentAliasSection::new(),
        lifts: CanonicalFunctionSection::new(),
        exports: ComponentExportSection::new(),
        action: types.component_type_count(),
        next_core_function: types.function_count(),
        next_memory: types.memory_count(),
        next_function: types.component_function_count(),
        added: KeepFunctions::default(),
    };
    let mut added_types = ComponentTypeSection::new();
    added_types.function().params::<_, ComponentValType>([]).result(None);
    added_types.defined_type().list(PrimitiveValType::U8);
    let list = ComponentValType::Type(ends.action + 1);
    added_types.function().params::<_, ComponentValType>([]).result(Some(list));
    for (instance, module) in (0..).zip(&plan.instances) {
        let module = module.and_then(|module| plan.modules.get(usize::try_from(module).ok()?));
        if let Some(module) = module {
            ends.add(instance, module);
        }
    }
    if !ends.exports.is_empty() {
        component.section(&ends.aliases);
        component.section(&added_types);
        component.section(&ends.lifts);
        component.section(&ends.exports);
    }
    ends.added
}

/// The sections at the end of the component. [`KeepFunctions`] counts their exports.
struct Ends {
    aliases: ComponentAliasSection,
    lifts: CanonicalFunctionSection,
    exports: ComponentExportSection,
    /// Index of the type of a function without parameters and results. The type of a function that returns a list is
    /// two indices later.
    action: u32,
    next_core_function: u32,
    next_memory: u32,
    next_function: u32,
    added: KeepFunctions,
}

impl Ends {
    fn add(&mut self, instance: u32, module: &Module) {
        if module.mutable().next().is_some() {
            let number = self.added.globals;
            for (name, exported) in [(SAVE, KeepFunctions::save(number)), (RESET, KeepFunctions::reset(number))] {
                let function = self.alias(instance, name);
                self.lifts.lift(function, self.action, []);
                self.export(&exported);
            }
            self.added.globals += 1;
        }
        for number in 0..module.memories {
            let kind = ExportKind::Memory;
            self.aliases.alias(Alias::CoreInstanceExport { instance, kind, name: &memory_name(number) });
            let memory = self.next_memory;
            self.next_memory += 1;
            let all = self.alias(instance, &all_of_memory_name(number));
            let back = self.alias(instance, &put_back_name(number));
            let options = [CanonicalOption::Memory(memory), CanonicalOption::PostReturn(back)];
            self.lifts.lift(all, self.action + 2, options);
            self.export(&KeepFunctions::memory(self.added.memories));
            self.added.memories += 1;
        }
    }

    /// Aliases a core function of an instance.
    fn alias(&mut self, instance: u32, name: &str) -> u32 {
        self.aliases.alias(Alias::CoreInstanceExport { instance, kind: ExportKind::Func, name });
        let index = self.next_core_function;
        self.next_core_function += 1;
        index
    }

    /// Exports the most recently lifted function.
    fn export(&mut self, name: &str) {
        self.exports.export(name, ComponentExportKind::Func, self.next_function, None);
        self.next_function += 1;
    }
}
