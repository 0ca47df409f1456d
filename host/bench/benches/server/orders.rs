//! Orders of the harness to a server while it runs: a word per line of its standard input. Each is answered by a number.

use std::io;

use annex_bench::counting;

#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Count allocations from now on.
    Count,
    /// Stop counting, and say how many there were.
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

/// Carries out what comes until standard input closes.
pub(crate) fn follow() {
    for line in io::stdin().lines().map_while(Result::ok) {
        let order = [Order::Count, Order::Counted].into_iter().find(|order| order.name() == line);
        if let Some(order) = order {
            println!("{}", order.carry_out());
        }
    }
}
