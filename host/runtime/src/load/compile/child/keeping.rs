//! Decides whether instances of a component can be kept between turns, and rewrites the component for that.
//!
//! At the beginning of each turn a kept instance must be in exactly its initial state. The host can write the memory of
//! an instance, but neither globals nor tables. So each core module gets shadows of its mutable globals, and functions
//! that copy between them. A component that can change any other state is refused. The decision depends only on the
//! bytes.

use std::borrow::Cow;

use wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind,
    ComponentType, ComponentTypeDeclaration, ComponentTypeRef, Instance, InstanceTypeDeclaration, Operator, Parser,
    Payload, TypeBounds, TypeRef, ValType, Validator,
};

use crate::load::keep_functions::{KeepFunctions, MAX_MEMORY, PREFIX};

mod rewrite;

/// A rewritten component whose instances can be kept.
pub(super) struct Keepable {
    /// The rewritten component.
    pub(super) bytes: Vec<u8>,
    /// Number of added functions.
    pub(super) functions: KeepFunctions,
}

/// Rewrites a component so that its instances can be kept, or returns why that is impossible. This validates the
/// component, which takes time. Call `structure::check` first, which limits this time.
pub(super) fn keepable(bytes: &[u8]) -> Result<Keepable, String> {
    // Validated before rewriting, because the additions could make an invalid module valid, for example by defining
    // what it imports.
    let types = Validator::new().validate_all(bytes).map_err(|error| malformed(&error))?;
    let plan = Plan::of(bytes)?;
    // A module that is not in the plan would shift indices, and its state would not be reset.
    if types.module_count() != plan.modules.len() || types.core_instance_count() != plan.instances.len() {
        return Err(SECOND_NAME.to_owned());
    }
    rewrite::component(bytes, &plan, &types).map_err(|error| malformed(&error))
}

fn malformed(error: &BinaryReaderError) -> String {
    format!("it is not valid: {error}")
}

/// The core modules of a component and their instances.
#[derive(Default)]
struct Plan {
    modules: Vec<Module>,
    /// Index of the module of each core instance; `None` for an instance that only collects exports.
    instances: Vec<Option<u32>>,
}

/// The counts and mutable state of a core module.
#[derive(Default)]
struct Module {
    types: u32,
    imported_functions: u32,
    functions: u32,
    imported_globals: u32,
    /// The globals that the module defines: the type of a mutable global, and `None` for an immutable one.
    globals: Vec<Option<ValType>>,
    imported_memories: u32,
    memories: u32,
    /// Initial size of the module's memories in bytes.
    bytes: usize,
}

impl Module {
    fn mutable(&self) -> impl Iterator<Item = (u32, ValType)> + '_ {
        let numbered = (self.imported_globals..).zip(&self.globals);
        numbered.filter_map(|(index, global)| Some((index, (*global)?)))
    }
}

impl Plan {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let mut plan = Self::default();
        // The enclosing parts of the current payload, outermost first: true for a component, false for a module.
        let mut within: Vec<bool> = Vec::new();
        let mut next = true;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(|error| malformed(&error))?;
            match &payload {
                Payload::Version { .. } => within.push(next),
                Payload::ModuleSection { .. } if within.len() == 1 => {
                    next = false;
                    plan.modules.push(Module::default());
                }
                Payload::ComponentSection { .. } => next = true,
                Payload::End(_) => {
                    within.pop();
                }
                _ if within.last() == Some(&false) => {
                    let module = plan.modules.last_mut().ok_or("a core module is out of place")?;
                    module.read(&payload)?;
                }
                _ if within.len() == 1 => plan.read(&payload)?,
                _ => check_wrapper(&payload)?,
            }
        }
        plan.check_instances()?;
        let bytes = plan.modules.iter().map(|module| module.bytes).fold(0, usize::saturating_add);
        if bytes > MAX_MEMORY {
            return Err(format!("its memories begin with {bytes} bytes, and at most {MAX_MEMORY} are kept"));
        }
        Ok(plan)
    }

    /// Reads a section of the outer component.
    fn read(&mut self, payload: &Payload<'_>) -> Result<(), String> {
        match payload {
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    self.instances.push(match instance.map_err(|error| malformed(&error))? {
                        Instance::Instantiate { module_index, .. } => Some(module_index),
                        Instance::FromExports(_) => None,
                    });
                }
                Ok(())
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section.clone() {
                    match function.map_err(|error| malformed(&error))? {
                        CanonicalFunction::Lift { .. } | CanonicalFunction::Lower { .. } => {}
                        _ => return Err("it makes or drops handles, or runs tasks of its own".to_owned()),
                    }
                }
                Ok(())
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(|error| malformed(&error))?;
                    check_name(export.name.name)?;
                    check_export(export.kind)?;
                }
                Ok(())
            }
            Payload::ComponentInstanceSection(_) | Payload::CoreTypeSection(_) => Ok(()),
            Payload::ComponentStartSection { .. } => Err("it has a start function of components".to_owned()),
            other => check_declarations(other),
        }
    }

    /// Refuses a module with two instances: its globals could not be told apart.
    fn check_instances(&self) -> Result<(), String> {
        for module in 0..self.modules.len() {
            let made = self.instances.iter().flatten().filter(|made| usize::try_from(**made) == Ok(module)).count();
            if made > 1 {
                return Err("one of its core modules is instantiated more than once".to_owned());
            }
        }
        Ok(())
    }
}

/// Checks a nested component. Nested components usually only define the types of exports. A nested component with code
/// or instances is refused, because it could have state.
fn check_wrapper(payload: &Payload<'_>) -> Result<(), String> {
    match payload {
        Payload::ComponentExportSection(section) => {
            for export in section.clone() {
                check_export(export.map_err(|error| malformed(&error))?.kind)?;
            }
            Ok(())
        }
        Payload::ModuleSection { .. }
        | Payload::InstanceSection(_)
        | Payload::CoreTypeSection(_)
        | Payload::ComponentInstanceSection(_)
        | Payload::ComponentStartSection { .. }
        | Payload::ComponentCanonicalSection(_) => Err("a component inside it has code or instances".to_owned()),
        other => check_declarations(other),
    }
}

/// Checks sections that declare types, imports and aliases, in the outer and in nested components.
fn check_declarations(payload: &Payload<'_>) -> Result<(), String> {
    match payload {
        Payload::ComponentTypeSection(section) => {
            for declared in section.clone() {
                check_type(&declared.map_err(|error| malformed(&error))?)?;
            }
            Ok(())
        }
        Payload::ComponentImportSection(section) => {
            for import in section.clone() {
                check_reference(import.map_err(|error| malformed(&error))?.ty)?;
            }
            Ok(())
        }
        Payload::ComponentAliasSection(section) => {
            for alias in section.clone() {
                check_alias(&alias.map_err(|error| malformed(&error))?)?;
            }
            Ok(())
        }
        Payload::CustomSection(_) => Ok(()),
        _ => Err("it has a section that is not known here".to_owned()),
    }
}

fn check_alias(alias: &ComponentAlias<'_>) -> Result<(), String> {
    let is_second_module = matches!(
        alias,
        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Module | ComponentExternalKind::Component, .. }
            | ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::CoreModule | ComponentOuterAliasKind::Component,
                ..
            }
    );
    if is_second_module { Err(SECOND_NAME.to_owned()) } else { Ok(()) }
}

/// Refuses to export a module or a component. An export would give it a second index, by which it could be instantiated
/// again.
fn check_export(kind: ComponentExternalKind) -> Result<(), String> {
    match kind {
        ComponentExternalKind::Module | ComponentExternalKind::Component => Err(SECOND_NAME.to_owned()),
        ComponentExternalKind::Func
        | ComponentExternalKind::Value
        | ComponentExternalKind::Type
        | ComponentExternalKind::Instance => Ok(()),
    }
}

/// The reason for refusing a module or component with two names. Such a module could have two instances, and only one
/// instance would be reset.
const SECOND_NAME: &str = "it gives a module or a component a second name";

/// The reason for refusing a component that uses handles. Guests can observe the order of the handle table, which the
/// host cannot reset.
const HANDLES: &str = "it imports or makes a type of handles";

fn check_type(declared: &ComponentType<'_>) -> Result<(), String> {
    match declared {
        ComponentType::Defined(_) | ComponentType::Func(_) => Ok(()),
        ComponentType::Resource { .. } => Err(HANDLES.to_owned()),
        ComponentType::Component(declarations) => declarations.iter().try_for_each(|declaration| match declaration {
            ComponentTypeDeclaration::CoreType(_) => Ok(()),
            ComponentTypeDeclaration::Type(declared) => check_type(declared),
            ComponentTypeDeclaration::Alias(alias) => check_alias(alias),
            ComponentTypeDeclaration::Export { ty, .. } => check_reference(*ty),
            ComponentTypeDeclaration::Import(import) => check_reference(import.ty),
        }),
        ComponentType::Instance(declarations) => declarations.iter().try_for_each(|declaration| match declaration {
            InstanceTypeDeclaration::CoreType(_) => Ok(()),
            InstanceTypeDeclaration::Type(declared) => check_type(declared),
            InstanceTypeDeclaration::Alias(alias) => check_alias(alias),
            InstanceTypeDeclaration::Export { ty, .. } => check_reference(*ty),
        }),
    }
}

fn check_reference(reference: ComponentTypeRef) -> Result<(), String> {
    match reference {
        ComponentTypeRef::Func(_)
        | ComponentTypeRef::Instance(_)
        | ComponentTypeRef::Value(_)
        | ComponentTypeRef::Type(TypeBounds::Eq(_)) => Ok(()),
        ComponentTypeRef::Type(TypeBounds::SubResource) => Err(HANDLES.to_owned()),
        ComponentTypeRef::Module(_) | ComponentTypeRef::Component(_) => {
            Err("it imports a module or a component".to_owned())
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    // Component names are compared case-insensitively.
    let start = name.get(..PREFIX.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)) {
        Err(format!("it uses a name that begins with {PREFIX}"))
    } else {
        Ok(())
    }
}

impl Module {
    /// Reads a section or a function of the module.
    fn read(&mut self, payload: &Payload<'_>) -> Result<(), String> {
        self.read_section(payload).map_err(|refusal| match refusal {
            Refusal::Malformed(error) => malformed(&error),
            Refusal::Unkeepable(reason) => reason.into_owned(),
        })
    }

    fn read_section(&mut self, payload: &Payload<'_>) -> Result<(), Refusal> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    self.types += u32::try_from(group?.types().len()).unwrap_or(u32::MAX);
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    let import = import?;
                    check_name(import.name).map_err(Cow::Owned)?;
                    match import.ty {
                        TypeRef::Func(_) | TypeRef::FuncExact(_) => self.imported_functions += 1,
                        TypeRef::Global(_) => self.imported_globals += 1,
                        TypeRef::Memory(_) => self.imported_memories += 1,
                        TypeRef::Table(_) | TypeRef::Tag(_) => {}
                    }
                }
            }
            Payload::FunctionSection(section) => self.functions = section.count(),
            Payload::MemorySection(section) => {
                for declared in section.clone() {
                    let declared = declared?;
                    let has_other_pages = declared.shared || declared.memory64 || declared.page_size_log2.is_some();
                    if has_other_pages || declared.initial == 0 {
                        return Err("it has a memory that is shared, empty or of another kind".into());
                    }
                    let bytes = usize::try_from(declared.initial.saturating_mul(1 << 16)).unwrap_or(usize::MAX);
                    self.bytes = self.bytes.saturating_add(bytes);
                    self.memories += 1;
                }
            }
            Payload::GlobalSection(section) => {
                for global in section.clone() {
                    let declared = global?.ty;
                    if declared.shared || (declared.mutable && matches!(declared.content_type, ValType::Ref(_))) {
                        return Err("it has a global of references that can be changed".into());
                    }
                    self.globals.push(declared.mutable.then_some(declared.content_type));
                }
            }
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    check_name(export?.name).map_err(Cow::Owned)?;
                }
            }
            Payload::CodeSectionEntry(function) => {
                for operator in function.get_operators_reader()? {
                    check_operator(&operator?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

enum Refusal {
    Malformed(BinaryReaderError),
    Unkeepable(Cow<'static, str>),
}

impl From<BinaryReaderError> for Refusal {
    fn from(error: BinaryReaderError) -> Self {
        Self::Malformed(error)
    }
}

impl From<&'static str> for Refusal {
    fn from(reason: &'static str) -> Self {
        Self::Unkeepable(reason.into())
    }
}

impl From<Cow<'static, str>> for Refusal {
    fn from(reason: Cow<'static, str>) -> Self {
        Self::Unkeepable(reason)
    }
}

/// Refuses instructions that change state which the host cannot reset.
fn check_operator(operator: &Operator<'_>) -> Result<(), Refusal> {
    match operator {
        Operator::TableSet { .. }
        | Operator::TableGrow { .. }
        | Operator::TableFill { .. }
        | Operator::TableCopy { .. }
        | Operator::TableInit { .. } => Err("its code changes a table".into()),
        Operator::ElemDrop { .. } | Operator::DataDrop { .. } => Err("its code drops a segment".into()),
        _ => Ok(()),
    }
}
