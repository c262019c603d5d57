import { BinaryWriter } from "@bufbuild/protobuf/wire";

interface MessageType<Message> {
  encode(message: Message, writer: BinaryWriter): BinaryWriter;
}

/**
 * Encodes messages of one type, all in the same buffer, which grows to the size of the largest: a
 * new one for each message starts small and is copied again and again while it grows.
 */
export function encoderOf<Message>(type: MessageType<Message>): (message: Message) => Uint8Array {
  const writer = new BinaryWriter();
  return (message) => {
    try {
      return type.encode(message, writer).finish();
    } catch (error) {
      writer.finish(); // Nothing of it may be in the next one.
      throw error;
    }
  };
}
