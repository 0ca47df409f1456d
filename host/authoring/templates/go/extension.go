{% set object = w.keyvalue or w.clock %}
{% set greets = h.card or h.live_card or h.reads or h.extended_card or h.response %}
// Package extension says hello.
package extension

import (
{% if h.message or h.output or greets %}
	"encoding/json"
{% endif %}
{% if h.message %}
	"slices"
{% endif %}
{% if h.output or h.reply %}
	"strings"
{% endif %}
{% if h.message or h.reply or h.output or greets %}

{% endif %}
	wit "go.bytecodealliance.org/pkg/wit/types"

{% if h.activation %}
	activation "example.com/{{ name }}/generated/imports/annex_extension_activation"
{% endif %}
{% if h.card %}
	card "example.com/{{ name }}/generated/imports/annex_extension_card"
{% endif %}
{% if h.client %}
	client "example.com/{{ name }}/generated/imports/annex_extension_client"
{% endif %}
	descriptor "example.com/{{ name }}/generated/imports/annex_extension_descriptor"
{% if h.extended_card %}
	extendedcard "example.com/{{ name }}/generated/imports/annex_extension_extended_card"
{% endif %}
{% if h.live_card %}
	livecard "example.com/{{ name }}/generated/imports/annex_extension_live_card"
{% endif %}
{% if h.message %}
	message "example.com/{{ name }}/generated/imports/annex_extension_message"
{% endif %}
{% if h.method %}
	method "example.com/{{ name }}/generated/imports/annex_extension_method"
{% endif %}
{% if h.output %}
	output "example.com/{{ name }}/generated/imports/annex_extension_output"
{% endif %}
{% if h.reads %}
	reads "example.com/{{ name }}/generated/imports/annex_extension_reads"
{% endif %}
{% if h.reply %}
	reply "example.com/{{ name }}/generated/imports/annex_extension_reply"
{% endif %}
{% if h.response %}
	response "example.com/{{ name }}/generated/imports/annex_extension_response"
{% endif %}
{% if h.steering %}
	steering "example.com/{{ name }}/generated/imports/annex_extension_steering"
{% endif %}
{% if h.transition %}
	transition "example.com/{{ name }}/generated/imports/annex_extension_transition"
{% endif %}
{% if h.activation or h.message or h.state or h.transition or h.reply or h.reads or h.extended_card or h.method or h.client %}
	types "example.com/{{ name }}/generated/imports/annex_extension_types"
{% endif %}
{% if h.response and w.clock %}
	clock "example.com/{{ name }}/generated/imports/wasi_clocks_wall_clock"
{% endif %}
{% if w.parameters and greets %}
	config "example.com/{{ name }}/generated/imports/wasi_config_store"
{% endif %}
{% if h.response and w.keyvalue %}
	atomics "example.com/{{ name }}/generated/imports/wasi_keyvalue_atomics"
	keyvalue "example.com/{{ name }}/generated/imports/wasi_keyvalue_store"
{% endif %}
{% if h.response and w.logging %}
	logging "example.com/{{ name }}/generated/imports/wasi_logging_logging"
{% endif %}
)
{% if w.random or w.http or w.json_schema or w.session_state or w.task or w.tasks or w.task_resumption or w.agent_steps or w.caller or w.task_metadata or (w.logging and not h.response) %}

// What the host offers is in generated/imports. Not used here yet:
//
{% endif %}
{% if w.logging and not h.response %}
//	wasi_logging_logging.Log(wasi_logging_logging.Level_Info, key, "a line"), which `annex test` shows when a case fails
{% endif %}
{% if w.random %}
//	wasi_random_random.GetRandomU64()
{% endif %}
{% if w.http %}
//	wasi_http_outgoing_handler.Handle(request, options)
{% endif %}
{% if w.json_schema %}
//	annex_extension_json_schema.Validate(schema, instance)
{% endif %}
{% if w.session_state %}
//	annex_extension_session_state.Get(key)
{% endif %}
{% if w.task %}
//	annex_extension_task.Current()
{% endif %}
{% if w.tasks %}
//	annex_extension_tasks.List(request)
{% endif %}
{% if w.task_resumption %}
//	annex_extension_task_resumption.Resume(taskID)
{% endif %}
{% if w.agent_steps %}
//	annex_extension_agent_steps.Recorded()
{% endif %}
{% if w.caller %}
//	annex_extension_caller.Current()
{% endif %}
{% if w.task_metadata %}
//	annex_extension_task_metadata.Set(key, "1")
{% endif %}

const (
	uri = "{{ uri }}"
	key = "{{ name }}"
)

{% if w.parameters %}
const parameterSchema = `{"type":"object","properties":{"greeting":{"type":"string","minLength":1}},"additionalProperties":false}`
{% else %}
const parameterSchema = `{"type":"object","additionalProperties":false}`
{% endif %}
{% if greets %}

func greeting() string {
{% if w.parameters %}
	return config.Get("greeting").Ok().SomeOr("hello")
{% else %}
	return "hello"
{% endif %}
}
{% endif %}
{% if h.output or greets %}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
{% endif %}

// Describe is called once per load, and again when the config changes. It says what the extension is.
func Describe() wit.Result[descriptor.ExtensionDescriptor, string] {
	return wit.Ok[descriptor.ExtensionDescriptor, string](descriptor.ExtensionDescriptor{
		Uri:             uri,
		Name:            "{{ name }}",
		Version:         "0.1.0",
		Description:     "Says hello.",
		ParameterSchema: wit.Some(parameterSchema),
		MetadataKeys:    []string{key},
{% if h.output or h.response %}
		Events:          descriptor.EventKinds_Artifact,
{% endif %}
	})
}
{% if h.card %}

// Declare is called once per load. It fills the extension's entry on the Agent Card.
func Declare() wit.Result[card.Declaration, string] {
	params := encode(map[string]string{"greeting": greeting()})
	return wit.Ok[card.Declaration, string](card.Declaration{Params: wit.Some(params)})
}
{% endif %}
{% if h.live_card %}

// DeclareLive is called once per load, and again when the entry's seconds are over. It fills the extension's entry on the
// Agent Card.
func DeclareLive() wit.Result[livecard.LiveDeclaration, string] {
	params := encode(map[string]string{"greeting": greeting()})
	return wit.Ok[livecard.LiveDeclaration, string](livecard.LiveDeclaration{Params: wit.Some(params), Seconds: 60})
}
{% endif %}
{% if h.activation %}

// Activate is called once per request that names the URI. It takes part, stays out or refuses the request.
// Without it the extension takes part, and a request is one call cheaper.
func Activate(request types.Request) wit.Result[activation.Decision, types.ExtensionError] {
	return wit.Ok[activation.Decision, types.ExtensionError](activation.Decision_Active)
}
{% endif %}
{% if h.message %}

type part struct {
	Text *string
}

func (p part) isEmpty() bool {
	return p.Text != nil && *p.Text == ""
}

// Check is called once per active request. It refuses the message, or rewrites its parts with the grant
// `rewrite-message`.
func Check(request types.Request, text string) wit.Result[[]message.Rewrite, types.Rejection] {
	var said struct{ Parts []part }
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		panic(err)
	}
	if slices.ContainsFunc(said.Parts, part.isEmpty) {
		violation := types.Violation{Pointer: "/message/parts", Message: "a text is empty"}
		rejection := types.MakeRejectionViolations([]types.Violation{violation})
		return wit.Err[[]message.Rewrite, types.Rejection](rejection)
	}
	return wit.Ok[[]message.Rewrite, types.Rejection](nil)
}
{% endif %}
{% if h.state %}

// Validate is called once per active request. It checks the metadata that the client sent and returns changes of the
// session's state.
func Validate(request types.Request, metadata []types.MetadataEntry) wit.Result[wit.Option[string], types.Rejection] {
	delta := wit.None[string]()
	if len(metadata) > 0 {
		delta = wit.Some(metadata[0].Value)
	}
	return wit.Ok[wit.Option[string], types.Rejection](delta)
}
{% endif %}
{% if h.transition %}

// Begin is called once per turn, before the agent runs. It lets it run, lets the task wait or rejects it.
func Begin(request types.Request, beginning transition.Beginning) wit.Result[transition.Entry, string] {
	return wit.Ok[transition.Entry, string](transition.MakeEntryProceed())
}

// Change is called for each change of the task's state. It lets it pass, annotates it, lets the task wait instead or
// vetoes it.
func Change(change transition.StateChange) wit.Result[transition.Ruling, string] {
	return wit.Ok[transition.Ruling, string](transition.MakeRulingPass())
}
{% endif %}
{% if h.reply %}

// BeforeAgent is called once per turn, before the agent runs. It answers in its place, or lets it run.
func BeforeAgent(request types.Request, text string) wit.Result[wit.Option[reply.ReadyAnswer], string] {
	answer := wit.None[reply.ReadyAnswer]()
	if strings.Contains(text, `"text":"ping"`) {
		answer = wit.Some(reply.ReadyAnswer{
			Outcome:  reply.Outcome_Completed,
			Parts:    []string{`{"text":"pong"}`},
			Artifact: wit.Some("answer"),
		})
	}
	return wit.Ok[wit.Option[reply.ReadyAnswer], string](answer)
}
{% endif %}
{% if h.steering %}

type modelResult = wit.Tuple2[steering.ModelVerdict, wit.Option[steering.Remark]]
type toolResult = wit.Tuple2[steering.ToolVerdict, wit.Option[steering.Remark]]
type outputResult = wit.Tuple2[wit.Option[string], wit.Option[steering.Remark]]

// BeforeModel is called before each call of the model. It lets it pass, changes it or fails the task. The second value is a
// remark for the client.
func BeforeModel(call steering.ModelCall) wit.Result[modelResult, string] {
	return wit.Ok[modelResult, string](modelResult{F0: steering.MakeModelVerdictPass(), F1: wit.None[steering.Remark]()})
}

// BeforeTool is called before each call of a tool. It lets it pass, changes it, denies it or lets the task wait.
func BeforeTool(call steering.ToolCall) wit.Result[toolResult, string] {
	verdict := steering.MakeToolVerdictPass()
	if call.Name == "forbidden" {
		verdict = steering.MakeToolVerdictDeny("this tool is forbidden")
	}
	return wit.Ok[toolResult, string](toolResult{F0: verdict, F1: wit.None[steering.Remark]()})
}

// AfterTool is called for each result of a tool. It leaves it or replaces it.
func AfterTool(made steering.ToolResult) wit.Result[outputResult, string] {
	return wit.Ok[outputResult, string](outputResult{F0: wit.None[string](), F1: wit.None[steering.Remark]()})
}
{% endif %}
{% if h.output %}

// Revise is called for each outgoing event of the kinds that the descriptor names. It leaves, replaces, holds back or
// refuses its content. A chunk may end within a word: what is held back comes again with the next chunk.
func Revise(content output.Content) wit.Result[output.Verdict, string] {
	var parts []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(content.Parts), &parts); err != nil {
		panic(err)
	}
	var replacements []output.Replacement
	for index, part := range parts {
		text := strings.ReplaceAll(string(part["text"]), "secret", "******")
		if text != string(part["text"]) {
			// Everything else of the part stays as it is.
			part["text"] = json.RawMessage(text)
			replacements = append(replacements, output.Replacement{Part: uint32(index), Parts: []string{encode(part)}})
		}
	}
	if replacements == nil {
		return wit.Ok[output.Verdict, string](output.MakeVerdictLeave())
	}
	return wit.Ok[output.Verdict, string](output.MakeVerdictReplace(replacements))
}
{% endif %}
{% if h.response %}
{% if object %}

type answer struct {
	Greeting string `json:"greeting"`
{% if w.keyvalue %}
	Count    uint64 `json:"count"`
{% endif %}
{% if w.clock %}
	At       uint64 `json:"at"`
{% endif %}
}
{% endif %}
{% if w.keyvalue %}

// countAnswer counts in the bucket that lives as long as the conversation.
func countAnswer() uint64 {
	bucket := keyvalue.Open("context").Ok()
	defer bucket.Drop()
	return atomics.Increment(bucket, "count", 1).Ok()
}
{% endif %}

// Respond is called for each outgoing event of the kinds that the descriptor names. It adds metadata under the
// extension's keys.
func Respond(event response.Event) wit.Result[wit.Option[response.Patch], string] {
{% if object %}
	value := encode(answer{
		Greeting: greeting(),
{% if w.keyvalue %}
		Count:    countAnswer(),
{% endif %}
{% if w.clock %}
		At:       clock.Now().Seconds,
{% endif %}
	})
{% else %}
	value := encode(greeting())
{% endif %}
{% if w.logging %}
	// A line of the host's log. `annex test` shows the lines of a case that fails.
	logging.Log(logging.Level_Info, key, "said hello")
{% endif %}
	patch := response.Patch{Metadata: []wit.Tuple2[string, string]{% raw %}{{{% endraw %}F0: key, F1: value{% raw %}}}{% endraw %}}
	return wit.Ok[wit.Option[response.Patch], string](wit.Some(patch))
}
{% endif %}
{% if h.reads %}

// Show is called once per read of a task, and once per page of a list. It adds metadata that this reader alone is shown, or
// leaves tasks out.
func Show(request types.Request, tasks []reads.ShownTask) wit.Result[[]reads.View, string] {
	var views []reads.View
	for range tasks {
		entry := wit.Tuple2[string, string]{F0: key, F1: encode(greeting())}
		views = append(views, reads.MakeViewAdd([]wit.Tuple2[string, string]{entry}))
	}
	return wit.Ok[[]reads.View, string](views)
}
{% endif %}
{% if h.extended_card %}

// ShowEntry is called once per read of the extended Agent Card. It changes the extension's entry for this reader alone.
func ShowEntry(request types.Request, entry extendedcard.ShownEntry) wit.Result[extendedcard.EntryChange, string] {
	params := encode(map[string]string{"greeting": greeting()})
	return wit.Ok[extendedcard.EntryChange, string](extendedcard.EntryChange{Params: wit.Some(params)})
}
{% endif %}
{% if h.method %}

// DeclareMethods is called once per load. It names the extension's own methods.
func DeclareMethods() wit.Result[[]method.Declaration, string] {
	echo := method.Declaration{Name: "{{ name }}.echo", Description: "Returns its parameters."}
	return wit.Ok[[]method.Declaration, string]([]method.Declaration{echo})
}

// Call is called for each call of a method. It answers or refuses.
func Call(request types.Request, name string, params string) wit.Result[method.Answer, types.Rejection] {
	return wit.Ok[method.Answer, types.Rejection](method.MakeAnswerValue(params))
}

// Next is called for each result of a method that streams. None ends the stream.
func Next() wit.Result[wit.Option[string], types.Rejection] {
	return wit.Ok[wit.Option[string], types.Rejection](wit.None[string]())
}
{% endif %}
{% if h.client %}

// Before is called on the calling side before each call. It adds the URI and metadata to it, or refuses it.
func Before(call client.Outgoing) wit.Result[client.Addition, types.Rejection] {
	addition := client.Addition{Activate: call.Declaration.IsSome()}
	return wit.Ok[client.Addition, types.Rejection](addition)
}

// After is called on the calling side for each thing that comes back. What it returns is for the program that called.
func After(event client.Incoming) wit.Result[wit.Option[string], string] {
	value := wit.None[string]()
	if count := len(event.Metadata); event.Active && count > 0 {
		value = wit.Some(event.Metadata[count-1].F1)
	}
	return wit.Ok[wit.Option[string], string](value)
}
{% endif %}
