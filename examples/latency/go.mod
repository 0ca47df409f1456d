module example.com/latency

go 1.27.1

require go.bytecodealliance.org/pkg v0.4.0

replace go.bytecodealliance.org/pkg => ./generated/pkg
