//! Barrier uniformity: no barrier where only some invocations of a workgroup may arrive.
//!
//! Browsers refuse a shader in which `workgroupBarrier`, `storageBarrier` or `workgroupUniformLoad` stands
//! in control flow that may differ between the invocations of a workgroup; naga accepts it. This lint
//! refuses a little more than browsers do, never less: it tracks values without regard to the order of
//! assignments.
//!
//! ```
//! let bad = "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lane: u32) {
//!     if lane < 3u { workgroupBarrier(); }
//! }";
//! let module = naga::front::wgsl::parse_str(bad).unwrap();
//! assert_eq!(attnc_codegen::lint::divergent_barriers(&module).len(), 1);
//! ```
//!
//! On entry: a module naga has validated. Source of the rules: WGSL, section 15.2, "Uniformity Analysis";
//! solved here as a least fixed point of "may differ" over functions, parameters, variables and results.

use std::collections::BTreeSet;
use std::fmt;

use naga::{
    AddressSpace, Barrier, Block, BuiltIn, Expression, Function, Handle, LocalVariable, Module,
    Span, Statement, StorageAccess,
};

/// A barrier that some invocations of a workgroup may not reach.
#[derive(Debug, Clone)]
pub struct DivergentBarrier {
    /// Where it stands in the text.
    pub span: Span,
    /// The function around it.
    pub function: String,
    /// The name in WGSL, such as `workgroupBarrier`.
    pub barrier: &'static str,
}

impl fmt::Display for DivergentBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in `{}` stands in control flow that may differ between the invocations of a workgroup; \
             move it out, or make what leads to it uniform",
            self.barrier, self.function
        )
    }
}

/// Every barrier of the module in possibly non-uniform control flow, in the order of the functions.
#[must_use]
pub fn divergent_barriers(module: &Module) -> Vec<DivergentBarrier> {
    let entries = module.entry_points.iter().map(|entry| &entry.function);
    let functions: Vec<&Function> = module
        .functions
        .iter()
        .map(|(_, function)| function)
        .chain(entries)
        .collect();
    let mut facts = Facts::default();
    loop {
        let before = facts.size();
        let mut found = Vec::new();
        for (index, function) in functions.iter().enumerate() {
            Walk::new(module, function, index, &mut facts, &mut found).function();
        }
        if facts.size() == before {
            return found;
        }
    }
}

/// What may differ between the invocations of a workgroup. Functions are numbered, entry points last.
#[derive(Default)]
struct Facts {
    /// Arguments of functions.
    arguments: BTreeSet<(usize, usize)>,
    /// Local variables: something divergent is stored, or something is stored divergently.
    locals: BTreeSet<(usize, Handle<LocalVariable>)>,
    /// Results of functions.
    results: BTreeSet<usize>,
    /// Functions called in divergent control flow.
    called_divergently: BTreeSet<usize>,
    /// Pointer arguments of functions that something divergent is stored through.
    stores_through: BTreeSet<(usize, usize)>,
}

impl Facts {
    fn size(&self) -> usize {
        self.arguments.len()
            + self.locals.len()
            + self.results.len()
            + self.called_divergently.len()
            + self.stores_through.len()
    }
}

/// How control may leave a block early while it is divergent.
#[derive(Clone, Copy, Default)]
struct Leaves {
    /// By `return`: what follows in the function is divergent.
    function: bool,
    /// By `break`: the rest of the loop or switch, and later iterations, are divergent.
    breakable: bool,
    /// By `continue`: the rest of this iteration is divergent.
    iteration: bool,
}

impl Leaves {
    fn any(self) -> bool {
        self.function || self.breakable || self.iteration
    }

    fn join(&mut self, other: Self) {
        self.function |= other.function;
        self.breakable |= other.breakable;
        self.iteration |= other.iteration;
    }
}

struct Walk<'a> {
    module: &'a Module,
    function: &'a Function,
    index: usize,
    facts: &'a mut Facts,
    found: &'a mut Vec<DivergentBarrier>,
    /// Whether each expression differs, by the facts at the start of the walk.
    differing: Vec<bool>,
}

impl<'a> Walk<'a> {
    fn new(
        module: &'a Module,
        function: &'a Function,
        index: usize,
        facts: &'a mut Facts,
        found: &'a mut Vec<DivergentBarrier>,
    ) -> Self {
        let mut walk = Self {
            module,
            function,
            index,
            facts,
            found,
            differing: Vec::new(),
        };
        for (_, expression) in function.expressions.iter() {
            let differs = walk.expression_differs(expression); // operands stand before their users
            walk.differing.push(differs);
        }
        walk
    }

    fn function(&mut self) {
        let divergent = self.facts.called_divergently.contains(&self.index);
        for (handle, local) in self.function.local_variables.iter() {
            if local.init.is_some_and(|init| self.differs(init)) {
                self.facts.locals.insert((self.index, handle));
            }
        }
        self.block(&self.function.body, divergent);
    }

    /// Walks a block entered in `divergent` control flow.
    fn block(&mut self, block: &Block, mut divergent: bool) -> Leaves {
        let mut leaves = Leaves::default();
        for (statement, span) in block.span_iter() {
            let left = self.statement(statement, *span, divergent);
            divergent |= left.any();
            leaves.join(left);
        }
        leaves
    }

    fn statement(&mut self, statement: &Statement, span: Span, divergent: bool) -> Leaves {
        let mut leaves = Leaves::default();
        match statement {
            Statement::Block(block) => leaves = self.block(block, divergent),
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let inside = divergent || self.differs(*condition);
                leaves = self.block(accept, inside);
                leaves.join(self.block(reject, inside));
            }
            Statement::Switch { selector, cases } => {
                let inside = divergent || self.differs(*selector);
                for case in cases {
                    leaves.join(self.block(&case.body, inside));
                }
                leaves.breakable = false; // a break leaves the switch, where control meets again
            }
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => {
                leaves = self.loop_statement(body, continuing, *break_if, divergent);
            }
            Statement::Break => leaves.breakable = divergent,
            Statement::Continue => leaves.iteration = divergent,
            Statement::Return { value } => {
                if value.is_some_and(|value| divergent || self.differs(value)) {
                    self.facts.results.insert(self.index);
                }
                leaves.function = divergent;
            }
            Statement::Kill => leaves.function = divergent,
            Statement::ControlBarrier(barrier) => {
                self.barrier(barrier_name(*barrier), span, divergent);
            }
            Statement::WorkGroupUniformLoad { .. } => {
                self.barrier("workgroupUniformLoad", span, divergent);
            }
            Statement::Store { pointer, value } => {
                if divergent || self.differs(*value) {
                    self.taint(*pointer);
                }
                self.taint_if_index_differs(*pointer);
            }
            Statement::Call {
                function,
                arguments,
                ..
            } => self.call(function.index(), arguments, divergent),
            _ => {}
        }
        leaves
    }

    /// A loop some invocations of which may leave sooner runs its later iterations divergently.
    fn loop_statement(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
        divergent: bool,
    ) -> Leaves {
        let mut inside = divergent;
        loop {
            let found = self.found.len();
            let mut leaves = self.block(body, inside);
            let after_body = inside || leaves.function || leaves.breakable;
            leaves.join(self.block(continuing, after_body));
            let breaks = break_if.is_some_and(|condition| self.differs(condition));
            let again = inside || leaves.function || leaves.breakable || breaks;
            if again == inside {
                return Leaves {
                    function: leaves.function,
                    breakable: false,
                    iteration: false,
                };
            }
            inside = again;
            self.found.truncate(found); // the second walk finds them all again
        }
    }

    fn barrier(&mut self, barrier: &'static str, span: Span, divergent: bool) {
        if divergent {
            let function = self.name();
            self.found.push(DivergentBarrier {
                span,
                function,
                barrier,
            });
        }
    }

    fn name(&self) -> String {
        let entry = self.index.checked_sub(self.module.functions.len());
        match entry {
            Some(entry) => self.module.entry_points[entry].name.clone(),
            None => self.function.name.clone().unwrap_or_default(),
        }
    }

    fn call(&mut self, callee: usize, arguments: &[Handle<Expression>], divergent: bool) {
        if divergent {
            self.facts.called_divergently.insert(callee);
            self.facts.results.insert(callee);
        }
        for (position, argument) in arguments.iter().enumerate() {
            if self.differs(*argument) {
                self.facts.arguments.insert((callee, position));
            }
            // A callee may store through a pointer: taint what it points to as soon as the callee does.
            if self.facts.stores_through.contains(&(callee, position)) {
                self.taint(*argument);
            }
        }
    }

    /// Marks the variable behind a pointer.
    fn taint(&mut self, pointer: Handle<Expression>) {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(local) => {
                self.facts.locals.insert((self.index, local));
            }
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.taint(base);
            }
            Expression::FunctionArgument(position) => {
                let position = position as usize;
                self.facts.stores_through.insert((self.index, position));
                self.facts.arguments.insert((self.index, position));
            }
            _ => {} // reads of other spaces differ anyway, see `differs`
        }
    }

    /// `x[lane] = 1` leaves different values in the array, though the value stored is the same.
    fn taint_if_index_differs(&mut self, pointer: Handle<Expression>) {
        let mut at = pointer;
        loop {
            match self.function.expressions[at] {
                Expression::Access { base, index } => {
                    if self.differs(index) {
                        self.taint(pointer);
                    }
                    at = base;
                }
                Expression::AccessIndex { base, .. } => at = base,
                _ => return,
            }
        }
    }

    fn differs(&self, handle: Handle<Expression>) -> bool {
        self.differing[handle.index()]
    }

    /// Whether an expression may differ between the invocations of a workgroup.
    fn expression_differs(&self, expression: &Expression) -> bool {
        let any =
            |handles: &[Handle<Expression>]| handles.iter().any(|handle| self.differs(*handle));
        match expression {
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::Override(_)
            | Expression::ZeroValue(_)
            | Expression::WorkGroupUniformLoadResult { .. } => false,
            Expression::Compose { components, .. } => any(components),
            Expression::Access { base, index } => any(&[*base, *index]),
            Expression::AccessIndex { base, .. } => self.differs(*base),
            Expression::Splat { value, .. } => self.differs(*value),
            Expression::Swizzle { vector, .. } => self.differs(*vector),
            Expression::FunctionArgument(position) => self.argument_differs(*position as usize),
            Expression::GlobalVariable(global) => match self.module.global_variables[*global].space
            {
                AddressSpace::Uniform | AddressSpace::Immediate => false,
                AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
                _ => true,
            },
            Expression::LocalVariable(local) => self.facts.locals.contains(&(self.index, *local)),
            Expression::Load { pointer } => self.differs(*pointer),
            Expression::Unary { expr, .. }
            | Expression::As { expr, .. }
            | Expression::ArrayLength(expr) => self.differs(*expr),
            Expression::Binary { left, right, .. } => any(&[*left, *right]),
            Expression::Select {
                condition,
                accept,
                reject,
            } => any(&[*condition, *accept, *reject]),
            Expression::Relational { argument, .. } => self.differs(*argument),
            Expression::Math {
                arg,
                arg1,
                arg2,
                arg3,
                ..
            } => [Some(*arg), *arg1, *arg2, *arg3]
                .into_iter()
                .flatten()
                .any(|handle| self.differs(handle)),
            Expression::CallResult(function) => self.facts.results.contains(&function.index()),
            _ => true, // atomics, subgroup operations, images: not needed uniform here
        }
    }

    fn argument_differs(&self, position: usize) -> bool {
        if self.facts.arguments.contains(&(self.index, position)) {
            return true;
        }
        if self.index < self.module.functions.len() {
            return false;
        }
        let argument = &self.function.arguments[position];
        let uniform = matches!(
            argument.binding,
            Some(naga::Binding::BuiltIn(
                BuiltIn::WorkGroupId | BuiltIn::NumWorkGroups | BuiltIn::WorkGroupSize
            ))
        );
        !uniform
    }
}

fn barrier_name(barrier: Barrier) -> &'static str {
    if barrier.contains(Barrier::WORK_GROUP) {
        "workgroupBarrier"
    } else if barrier.contains(Barrier::STORAGE) {
        "storageBarrier"
    } else if barrier.contains(Barrier::SUB_GROUP) {
        "subgroupBarrier"
    } else {
        "textureBarrier"
    }
}
