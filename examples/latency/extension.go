// Package extension is Twilio's latency extension: the Agent Card says how long calls of tools take, and a client that waits
// for an answer is told before each call.
package extension

import (
	"encoding/json"
	"slices"

	wit "go.bytecodealliance.org/pkg/wit/types"

	descriptor "example.com/latency/generated/imports/annex_extension_descriptor"
	livecard "example.com/latency/generated/imports/annex_extension_live_card"
	steering "example.com/latency/generated/imports/annex_extension_steering"
	clock "example.com/latency/generated/imports/wasi_clocks_wall_clock"
	config "example.com/latency/generated/imports/wasi_config_store"
	keyvalue "example.com/latency/generated/imports/wasi_keyvalue_store"
)

const (
	uri = "https://github.com/twilio-labs/a2a-latency-extension"
	// The metadata key of the published extension, which has no prefix.
	key = "toolName"
	// How many measured calls are kept.
	window = 100
	// The key of the measured calls, in the bucket that stays.
	measured = "milliseconds"
	// The longest name of a tool in metadata. A model chooses the name.
	longest = 256
)

const parameterSchema = `{
  "type": "object",
  "properties": {
    "expected": {"type": "integer", "minimum": 1, "description": "The latency in milliseconds that is declared until calls are measured; 1000."},
    "seconds": {"type": "integer", "minimum": 1, "description": "For how long the entry on the card holds; 60."}
  },
  "additionalProperties": false
}`

// When each call began, by its id. An instance serves one turn.
var began = map[string]uint64{}

func number(name string, otherwise uint32) uint32 {
	value := otherwise
	if text := config.Get(name).Ok(); text.IsSome() {
		if json.Unmarshal([]byte(text.Some()), &value) != nil {
			return otherwise
		}
	}
	return value
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func now() uint64 {
	time := clock.Now()
	return time.Seconds*1000 + uint64(time.Nanoseconds)/1_000_000
}

// The latest calls in milliseconds, the oldest first.
func latencies() []uint32 {
	opened := keyvalue.Open("")
	if opened.IsErr() {
		return nil
	}
	bucket := opened.Ok()
	defer bucket.Drop()
	stored := bucket.Get(measured)
	if stored.IsErr() || stored.Ok().IsNone() {
		return nil
	}
	var calls []uint32
	if json.Unmarshal(stored.Ok().Some(), &calls) != nil {
		return nil
	}
	return calls
}

func keep(calls []uint32) {
	opened := keyvalue.Open("")
	if opened.IsErr() {
		return
	}
	bucket := opened.Ok()
	defer bucket.Drop()
	bucket.Set(measured, []byte(encode(calls[max(0, len(calls)-window):])))
}

// The percentile of sorted calls.
func percentile(sorted []uint32, percent int) uint32 {
	return sorted[(len(sorted)-1)*percent/100]
}

// Describe is called once per load, and again when the config changes. It says what the extension is.
func Describe() wit.Result[descriptor.ExtensionDescriptor, string] {
	return wit.Ok[descriptor.ExtensionDescriptor, string](descriptor.ExtensionDescriptor{
		Uri:             uri,
		Name:            "latency",
		Version:         "0.1.0",
		Description:     "Says how long an answer takes.",
		ParameterSchema: wit.Some(parameterSchema),
		MetadataKeys:    []string{key},
	})
}

// DeclareLive is called once per load, and again when the entry's seconds are over. It puts the measured latency on the Agent
// Card.
func DeclareLive() wit.Result[livecard.LiveDeclaration, string] {
	latency := map[string]uint32{}
	if calls := latencies(); len(calls) == 0 {
		latency["p50Latency"] = number("expected", 1000)
	} else {
		slices.Sort(calls)
		for name, percent := range map[string]int{"p50Latency": 50, "p75Latency": 75, "p90Latency": 90, "p95Latency": 95, "p99Latency": 99} {
			latency[name] = percentile(calls, percent)
		}
	}
	params := encode(map[string]any{"supportsTaskLatencyUpdates": true, "skillLatency": latency})
	declaration := livecard.LiveDeclaration{Params: wit.Some(params), Seconds: number("seconds", 60)}
	return wit.Ok[livecard.LiveDeclaration, string](declaration)
}

type modelResult = wit.Tuple2[steering.ModelVerdict, wit.Option[steering.Remark]]
type toolResult = wit.Tuple2[steering.ToolVerdict, wit.Option[steering.Remark]]
type outputResult = wit.Tuple2[wit.Option[string], wit.Option[steering.Remark]]

// BeforeModel is called before each call of the model, and lets it pass.
func BeforeModel(call steering.ModelCall) wit.Result[modelResult, string] {
	return wit.Ok[modelResult, string](modelResult{F0: steering.MakeModelVerdictPass(), F1: wit.None[steering.Remark]()})
}

// BeforeTool is called before each call of a tool. It tells the client how long the call is expected to take.
func BeforeTool(call steering.ToolCall) wit.Result[toolResult, string] {
	began[call.Id] = now()
	expected := number("expected", 1000)
	if calls := latencies(); len(calls) > 0 {
		slices.Sort(calls)
		expected = percentile(calls, 50)
	}
	name := call.Name
	if len(name) > longest {
		name = "a tool"
	}
	data := encode(map[string]any{"data": map[string]uint32{"latency": expected}})
	remark := steering.Remark{Parts: []string{data}, Metadata: []wit.Tuple2[string, string]{{F0: key, F1: encode(name)}}}
	return wit.Ok[toolResult, string](toolResult{F0: steering.MakeToolVerdictPass(), F1: wit.Some(remark)})
}

// AfterTool is called for each result of a tool. It measures the call.
func AfterTool(made steering.ToolResult) wit.Result[outputResult, string] {
	if start, isKnown := began[made.Id]; isKnown {
		delete(began, made.Id)
		if end := now(); end >= start {
			keep(append(latencies(), uint32(min(end-start, 1<<32-1))))
		}
	}
	return wit.Ok[outputResult, string](outputResult{F0: wit.None[string](), F1: wit.None[steering.Remark]()})
}
