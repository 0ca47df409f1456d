//! Orders of the harness to a running server: a word per line of its standard input. The server answers each with a
//! number.

use std::io;

use annex_bench::counting;

#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Starts counting allocations.
    Count,
    /// Stops counting, and answers with the number.
    Counted,
}

impl Order {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Counted => "counted",
        }
    }

    fn carry_out(self) -> u64 {
        match self {
            Self::Count => {
                counting::begin();
                0
            }
            Self::Counted => counting::end(),
        }
    }
}

/// Executes orders until standard input closes.
pub(crate) fn follow() {
    for line in io::stdin().lines().map_while(Result::ok) {
        let order = [Order::Count, Order::Counted].into_iter().find(|order| order.name() == line);
        if let Some(order) = order {
            println!("{}", order.carry_out());
        }
    }
}
