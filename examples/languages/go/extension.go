// Package extension is the Timestamp extension, version 1: the time at which a message or artifact was made, in its
// metadata.
package extension

import (
	"slices"
	"strconv"
	"strings"
	"time"

	wit "go.bytecodealliance.org/pkg/wit/types"

	client "timestamp/generated/imports/annex_extension_client"
	descriptor "timestamp/generated/imports/annex_extension_descriptor"
	response "timestamp/generated/imports/annex_extension_response"
	types "timestamp/generated/imports/annex_extension_types"
	config "timestamp/generated/imports/wasi_config_store"
)

const defaultURI = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"

const parameterSchema = `{
  "type": "object",
  "properties": {
    "uri": {"type": "string", "minLength": 1, "description": "The extension's URI."},
    "key": {"type": "string", "minLength": 1, "description": "The metadata key of the stamp: by default the URI without its scheme, and ` + "`/timestamp`" + `."}
  },
  "additionalProperties": false
}`

func uri() string {
	return config.Get("uri").Ok().SomeOr(defaultURI)
}

func key() string {
	path := uri()
	if _, rest, found := strings.Cut(path, "://"); found {
		path = rest
	}
	return config.Get("key").Ok().SomeOr(path + "/timestamp")
}

// now is the time as JSON, in RFC 3339 with milliseconds.
func now() string {
	return strconv.Quote(time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
}

func Describe() wit.Result[descriptor.ExtensionDescriptor, string] {
	return wit.Ok[descriptor.ExtensionDescriptor, string](descriptor.ExtensionDescriptor{
		Uri:             uri(),
		Name:            "timestamp",
		Version:         "0.1.0",
		Description:     "Adds the time to the metadata of messages and artifacts.",
		ParameterSchema: wit.Some(parameterSchema),
		MetadataKeys:    []string{key()},
		Events:          descriptor.EventKinds_Message | descriptor.EventKinds_Status | descriptor.EventKinds_Artifact,
	})
}

// Respond stamps a message, an artifact, or a status with a message on it. A stamp that is there already stays.
func Respond(event response.Event) wit.Result[wit.Option[response.Patch], string] {
	isStampable := event.Kind != response.EventKind_Status || event.HasMessage
	if !isStampable || slices.Contains(event.Present, key()) {
		return wit.Ok[wit.Option[response.Patch], string](wit.None[response.Patch]())
	}
	patch := response.Patch{Metadata: []wit.Tuple2[string, string]{{F0: key(), F1: now()}}}
	return wit.Ok[wit.Option[response.Patch], string](wit.Some(patch))
}

// Before stamps what the client sends, when the agent knows stamps.
func Before(call client.Outgoing) wit.Result[client.Addition, types.Rejection] {
	var addition client.Addition
	if call.Message.IsSome() && call.Declaration.IsSome() {
		addition.Activate = true
		addition.Metadata = []types.MetadataEntry{{Location: types.Location_Message, Key: key(), Value: now()}}
	}
	return wit.Ok[client.Addition, types.Rejection](addition)
}

// After gives the last stamp on what came back, for the program.
func After(event client.Incoming) wit.Result[wit.Option[string], string] {
	stamp := wit.None[string]()
	if count := len(event.Metadata); event.Active && count > 0 {
		stamp = wit.Some(event.Metadata[count-1].F1)
	}
	return wit.Ok[wit.Option[string], string](stamp)
}
