//! Decides whether instances of a component can be kept between turns, and makes the component that lets them be.
//!
//! A kept instance must be exactly what it was after its instantiation when the next turn begins. The host reaches its
//! memory, and neither its globals nor its tables. So each core module gets shadows of its mutable globals and functions
//! that copy between the two, and a component that could change anything else is refused. All is decided from the bytes:
//! nothing is learnt by watching.

use std::borrow::Cow;

use wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind,
    ComponentType, ComponentTypeDeclaration, ComponentTypeRef, Instance, InstanceTypeDeclaration, Operator, Parser,
    Payload, TypeBounds, TypeRef, ValType, Validator,
};

use crate::load::keep_functions::{KeepFunctions, MAX_MEMORY, PREFIX};

mod rewrite;

/// A component whose instances can be kept.
pub(super) struct Keepable {
    /// The component with what is added to it.
    pub(super) bytes: Vec<u8>,
    /// The functions that are added.
    pub(super) functions: KeepFunctions,
}

/// The component that keeps what its instances are, or the reason for which there is none. The structure of `bytes` has
/// been checked: validating is work too.
pub(super) fn keepable(bytes: &[u8]) -> Result<Keepable, String> {
    // What is added must not make something valid that was not: a module could import it otherwise.
    let types = Validator::new().validate_all(bytes).map_err(|error| malformed(&error))?;
    let plan = Plan::of(bytes)?;
    // An index that was not counted here would lead to another module, and leave one as its turns made it.
    if types.module_count() != plan.modules.len() || types.core_instance_count() != plan.instances.len() {
        return Err(SECOND_NAME.to_owned());
    }
    rewrite::component(bytes, &plan, &types).map_err(|error| malformed(&error))
}

fn malformed(error: &BinaryReaderError) -> String {
    format!("it is not valid: {error}")
}

/// The core modules of a component, and how they are instantiated.
#[derive(Default)]
struct Plan {
    modules: Vec<Module>,
    /// The module that each core instance is made of; `None` for one that is a list of exports.
    instances: Vec<Option<u32>>,
}

/// The parts of a core module that a turn may change.
#[derive(Default)]
struct Module {
    types: u32,
    imported_functions: u32,
    functions: u32,
    imported_globals: u32,
    /// Each global that the module defines: its type if it can be changed.
    globals: Vec<Option<ValType>>,
    imported_memories: u32,
    memories: u32,
    /// Bytes that its memories begin with.
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
        // What surrounds the payload, from the outside in: true for a component, false for a module.
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

    /// Reads a section of the component itself.
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

    /// A module of which there are two instances has two sets of globals under one name.
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

/// The components within a component name the types of its exports. One that holds more could hold state.
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

/// Sections that name things, in the component itself and in those inside it.
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

/// An exported module has another index from there on, by which it can be instantiated too.
fn check_export(kind: ComponentExternalKind) -> Result<(), String> {
    match kind {
        ComponentExternalKind::Module | ComponentExternalKind::Component => Err(SECOND_NAME.to_owned()),
        ComponentExternalKind::Func
        | ComponentExternalKind::Value
        | ComponentExternalKind::Type
        | ComponentExternalKind::Instance => Ok(()),
    }
}

/// By two names there would be two instances of one module, of which one is not put back.
const SECOND_NAME: &str = "it gives a module or a component a second name";

/// The table of handles has an order that a guest can read, and the host cannot put back.
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
    // Names of components are compared without case.
    let start = name.get(..PREFIX.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)) {
        Err(format!("it uses a name that begins with {PREFIX}"))
    } else {
        Ok(())
    }
}

impl Module {
    /// Reads a section or a function of a core module.
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

/// Refuses what changes a part of an instance that the host cannot put back.
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
