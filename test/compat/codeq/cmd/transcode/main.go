// Command transcode turns messages into bytes and back with the types that CodeQ's client packages
// register. Those types are internal to CodeQ, and only the registry of the process hands them out.
//
// A line of input is {"type", "json"} to encode or {"type", "hex"} to decode. The line of output
// has both, "again" for the bytes of what was decoded, or "error".
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/osvaldoandrade/codeq/pkg/producerclient"
	_ "github.com/osvaldoandrade/codeq/pkg/workerclient"

	"codeqcompat/internal/lines"
)

type line struct {
	Type  string          `json:"type"`
	JSON  json.RawMessage `json:"json,omitempty"`
	Hex   *string         `json:"hex,omitempty"`
	Again *string         `json:"again,omitempty"`
	Error string          `json:"error,omitempty"`
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		var asked line
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			panic(err)
		}
		answer, err := transcode(asked)
		if err != nil {
			answer = line{Type: asked.Type, Error: err.Error()}
		}
		lines.Print(answer)
	}
}

func transcode(asked line) (line, error) {
	name := protoreflect.FullName(asked.Type)
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return line{}, err
	}
	message := kind.New().Interface()
	if asked.Hex == nil {
		if err := protojson.Unmarshal(asked.JSON, message); err != nil {
			return line{}, err
		}
		encoded, err := encode(message)
		return line{Type: asked.Type, JSON: asked.JSON, Hex: &encoded}, err
	}
	bytes, err := hex.DecodeString(*asked.Hex)
	if err != nil {
		return line{}, err
	}
	if err := proto.Unmarshal(bytes, message); err != nil {
		return line{}, err
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		return line{}, err
	}
	again, err := encode(message)
	return line{Type: asked.Type, JSON: text, Hex: asked.Hex, Again: &again}, err
}

func encode(message proto.Message) (string, error) {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return hex.EncodeToString(bytes), err
}
