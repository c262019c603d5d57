package contract

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Stream is one call of a service's only method. Many may send, one may receive.
type Stream struct {
	raw     grpc.ClientStream
	pack    pack
	sending sync.Mutex
}

// Open calls Stream of the service of a package, such as "workerpb".
func Open(ctx context.Context, conn *grpc.ClientConn, name string) (*Stream, error) {
	for _, pack := range table {
		if pack.name != name {
			continue
		}
		method := fmt.Sprintf("/%s.%s/Stream", pack.name, pack.service)
		both := &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
		raw, err := conn.NewStream(ctx, both, method)
		if err != nil {
			return nil, err
		}
		return &Stream{raw: raw, pack: pack}, nil
	}
	return nil, fmt.Errorf("no package %s", name)
}

// Send sends an event with one body.
func (s *Stream) Send(name string, body proto.Message) error {
	event := New(s.pack.name+"."+s.pack.from, Fields{name: body})
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.raw.SendMsg(event)
}

// Receive waits for the next event and opens it.
func (s *Stream) Receive() (string, protoreflect.Message, error) {
	event := New(s.pack.name+"."+s.pack.to, nil)
	if err := s.raw.RecvMsg(event); err != nil {
		return "", nil, err
	}
	name, body := Event(event)
	return name, body, nil
}

// Hello sends the first event and gives the server's first.
func (s *Stream) Hello(fields Fields) (protoreflect.Message, error) {
	if err := s.Send("hello", New(s.pack.name+".Hello", fields)); err != nil {
		return nil, fmt.Errorf("hello was not sent: %w", err)
	}
	name, body, err := s.Receive()
	if err != nil {
		return nil, fmt.Errorf("hello was not answered: %w", err)
	}
	switch name {
	case "hello_ack":
		return body, nil
	case "error":
		return nil, fmt.Errorf("hello was refused: %s (%s)",
			Get(body, "message").String(), Get(body, "code").String())
	default:
		return nil, fmt.Errorf("hello was answered by %q", name)
	}
}

// CloseSend says that nothing more will be sent.
func (s *Stream) CloseSend() error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.raw.CloseSend()
}
