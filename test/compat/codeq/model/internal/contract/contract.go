// Package contract is CodeQ's wire contract as data, for Go's own protobuf and gRPC libraries.
// Importing it registers the messages under their full names, as generated code would.
package contract

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type pack struct {
	name, service, from, to string
	messages                map[string]string
}

func init() {
	for _, pack := range table {
		file, err := protodesc.NewFile(describe(pack), protoregistry.GlobalFiles)
		must(err)
		must(protoregistry.GlobalFiles.RegisterFile(file))
		for i := range file.Messages().Len() {
			message := dynamicpb.NewMessageType(file.Messages().Get(i))
			must(protoregistry.GlobalTypes.RegisterMessage(message))
		}
	}
}

func describe(pack pack) *descriptorpb.FileDescriptorProto {
	names := make([]string, 0, len(pack.messages))
	for name := range pack.messages {
		names = append(names, name)
	}
	sort.Strings(names)
	file := &descriptorpb.FileDescriptorProto{
		Name:    proto.String(pack.name + ".proto"),
		Package: proto.String(pack.name),
		Syntax:  proto.String("proto3"),
		// The registry knows it, because timestamppb is linked.
		Dependency: []string{timestamppb.File_google_protobuf_timestamp_proto.Path()},
	}
	for _, name := range names {
		message := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		isEvent := name == pack.from || name == pack.to
		if isEvent {
			message.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("event")}}
		}
		for _, text := range strings.Fields(pack.messages[name]) {
			field := describeField(pack.name, text)
			if isEvent {
				field.OneofIndex = proto.Int32(0)
			}
			message.Field = append(message.Field, field)
		}
		file.MessageType = append(file.MessageType, message)
	}
	return file
}

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING,
	"bytes":  descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"int32":  descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64,
	"bool":   descriptorpb.FieldDescriptorProto_TYPE_BOOL,
}

func describeField(pack, text string) *descriptorpb.FieldDescriptorProto {
	name, rest, _ := strings.Cut(text, "=")
	digits, kind, _ := strings.Cut(rest, ":")
	number, err := strconv.ParseInt(digits, 10, 32)
	must(err)
	label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	if strings.HasSuffix(kind, "*") {
		label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		kind = strings.TrimSuffix(kind, "*")
	}
	if kind == "" {
		kind = "string"
	}
	field := &descriptorpb.FieldDescriptorProto{
		Name:   proto.String(name),
		Number: proto.Int32(int32(number)),
		Label:  label.Enum(),
	}
	if scalar, ok := scalars[kind]; ok {
		field.Type = scalar.Enum()
		return field
	}
	field.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	field.TypeName = proto.String("." + pack + "." + kind)
	if kind == "time" {
		field.TypeName = proto.String(".google.protobuf.Timestamp")
	}
	return field
}

// Fields are values by field name; what is not named is not set.
type Fields map[string]any

// New makes a message of the contract, such as "workerpb.Ready".
func New(name string, fields Fields) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	must(err)
	message := kind.New()
	for key, value := range fields {
		set(message, field(message, key), value)
	}
	return message.Interface()
}

func set(message protoreflect.Message, field protoreflect.FieldDescriptor, value any) {
	switch value := value.(type) {
	case proto.Message:
		message.Set(field, protoreflect.ValueOfMessage(value.ProtoReflect()))
	case []string:
		for _, text := range value {
			message.Mutable(field).List().Append(protoreflect.ValueOfString(text))
		}
	case []proto.Message:
		for _, one := range value {
			message.Mutable(field).List().Append(protoreflect.ValueOfMessage(one.ProtoReflect()))
		}
	default:
		message.Set(field, protoreflect.ValueOf(value))
	}
}

// Event gives the name and the body of what an event carries; "" if that is nothing known.
func Event(event proto.Message) (string, protoreflect.Message) {
	message := event.ProtoReflect()
	which := message.WhichOneof(message.Descriptor().Oneofs().ByName("event"))
	if which == nil {
		return "", nil
	}
	return string(which.Name()), message.Get(which).Message()
}

// Get reads a field by its name.
func Get(message protoreflect.Message, name string) protoreflect.Value {
	return message.Get(field(message, name))
}

// List reads a repeated field of messages.
func List(message protoreflect.Message, name string) []protoreflect.Message {
	list := Get(message, name).List()
	messages := make([]protoreflect.Message, list.Len())
	for i := range messages {
		messages[i] = list.Get(i).Message()
	}
	return messages
}

func field(message protoreflect.Message, name string) protoreflect.FieldDescriptor {
	found := message.Descriptor().Fields().ByName(protoreflect.Name(name))
	if found == nil {
		panic(fmt.Sprintf("%s has no field %s", message.Descriptor().FullName(), name))
	}
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
