//! Counts the values that blocks, branches and calls pass. The compiler tracks each value at each block, branch and
//! call. So a few bytes that refer to a type with a thousand results cost as much as a thousand instructions.

use wasmparser::{BlockType, BrTable, CompositeInnerType, FuncType, Operator, Payload, TypeRef};

use crate::error::LoadError;

/// Number of parameters and results of a function type.
#[derive(Clone, Copy, Default)]
struct Arity {
    parameters: u64,
    results: u64,
}

impl Arity {
    fn of(function: &FuncType) -> Self {
        let count = |types: &[wasmparser::ValType]| u64::try_from(types.len()).unwrap_or(u64::MAX);
        Self { parameters: count(function.params()), results: count(function.results()) }
    }

    fn both(self) -> u64 {
        self.parameters.saturating_add(self.results)
    }
}

/// The types that the code of one core module refers to.
#[derive(Default)]
pub(super) struct Signatures {
    types: Vec<Arity>,
    /// Type index of each function, imported ones first.
    functions: Vec<u32>,
    /// Number of function bodies read so far.
    bodies: usize,
    imported: usize,
}

impl Signatures {
    /// Reads a section of the module.
    pub(super) fn add(&mut self, payload: &Payload<'_>) -> Result<(), LoadError> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    self.types.extend(group?.types().map(|ty| match &ty.composite_type.inner {
                        CompositeInnerType::Func(function) => Arity::of(function),
                        CompositeInnerType::Array(_) | CompositeInnerType::Struct(_) | CompositeInnerType::Cont(_) => {
                            Arity::default()
                        }
                    }));
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    if let TypeRef::Func(ty) | TypeRef::FuncExact(ty) = import?.ty {
                        self.functions.push(ty);
                        self.imported += 1;
                    }
                }
            }
            Payload::FunctionSection(section) => {
                for ty in section.clone() {
                    self.functions.push(ty?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins the count for the next function body.
    pub(super) fn next_body(&mut self) -> BranchValues<'_> {
        let index = self.imported.saturating_add(self.bodies);
        self.bodies += 1;
        let results = self.functions.get(index).map_or(0, |ty| self.of_type(*ty).results);
        BranchValues { signatures: self, labels: vec![results], results, passed: 0 }
    }

    /// Number of parameters and results of a type. An undefined type counts as 0, because the validator refuses it.
    fn of_type(&self, index: u32) -> Arity {
        usize::try_from(index).ok().and_then(|index| self.types.get(index)).copied().unwrap_or_default()
    }

    fn of_function(&self, index: u32) -> Arity {
        let ty = usize::try_from(index).ok().and_then(|index| self.functions.get(index));
        ty.map(|ty| self.of_type(*ty)).unwrap_or_default()
    }

    fn of_block(&self, block: BlockType) -> Arity {
        match block {
            BlockType::Empty => Arity::default(),
            BlockType::Type(_) => Arity { parameters: 0, results: 1 },
            BlockType::FuncType(index) => self.of_type(index),
        }
    }
}

/// Counts the values that the operators of one function pass.
pub(super) struct BranchValues<'signatures> {
    signatures: &'signatures Signatures,
    /// Number of values that a branch to each open block passes, beginning with the function itself.
    labels: Vec<u64>,
    results: u64,
    pub(super) passed: u64,
}

impl BranchValues<'_> {
    pub(super) fn add(&mut self, operator: &Operator<'_>) -> Result<(), LoadError> {
        let values = match operator {
            Operator::Loop { blockty } => {
                let arity = self.signatures.of_block(*blockty);
                // A branch to a loop goes to its beginning and passes the parameters, not the results.
                self.labels.push(arity.parameters);
                arity.both()
            }
            Operator::Block { blockty } | Operator::If { blockty } => {
                let arity = self.signatures.of_block(*blockty);
                self.labels.push(arity.results);
                arity.both()
            }
            // `else` ends the first branch, which passes the results of the block.
            Operator::Else => self.label(0),
            Operator::End => self.labels.pop().unwrap_or(0),
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => self.label(*relative_depth),
            Operator::BrTable { targets } => self.of_table(targets)?,
            Operator::Return => self.results,
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                self.signatures.of_function(*function_index).both()
            }
            Operator::CallIndirect { type_index, .. } | Operator::ReturnCallIndirect { type_index, .. } => {
                self.signatures.of_type(*type_index).both()
            }
            _ => 0,
        };
        self.passed = self.passed.saturating_add(values);
        Ok(())
    }

    fn label(&self, depth: u32) -> u64 {
        let from_top = usize::try_from(depth).unwrap_or(usize::MAX).saturating_add(1);
        self.labels.len().checked_sub(from_top).and_then(|index| self.labels.get(index)).copied().unwrap_or(0)
    }

    /// Number of values that a branch table passes: the sum over all its targets.
    fn of_table(&self, targets: &BrTable<'_>) -> Result<u64, LoadError> {
        let values = self.label(targets.default());
        let each =
            targets.targets().try_fold(values, |sum, target| target.map(|depth| sum.saturating_add(self.label(depth))));
        Ok(each?)
    }
}
