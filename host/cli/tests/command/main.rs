//! The `annex` command as a user meets it: arguments in; standard output, standard error and the exit code out.

mod foreign;
mod help;
mod inspect;
mod send;
mod serve;
mod support;
