//! Orders of the harness to a running server. Each order is a word on a line of the server's standard input. The server
//! answers each order with a number.

use std::io;

use annex_bench::counting;

#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Start counting allocations. The answer is 0.
    Count,
    /// Stop counting. The answer is the number of allocations.
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

/// Reads orders and executes them until standard input closes.
pub(crate) fn follow() {
    for line in io::stdin().lines().map_while(Result::ok) {
        let order = [Order::Count, Order::Counted].into_iter().find(|order| order.name() == line);
        if let Some(order) = order {
            println!("{}", order.carry_out());
        }
    }
}
