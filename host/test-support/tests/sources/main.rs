//! Checks of the sources of the whole workspace. They read files and run nothing.

#![cfg(test)]

mod circles;
mod code;
mod graph;
mod leases;
mod passages;
mod prose;
mod shapes;
mod type_names;
