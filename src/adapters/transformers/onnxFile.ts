/**
 * Which other files an ONNX file takes its weights from: the `location` of every tensor that it holds, wherever in the file
 * the tensor stands (initialisers, attributes of nodes, sub-graphs, functions, sparse tensors). No name of a file is
 * guessed.
 *
 * The file comes in parts of any size and is never held: what lies between the names is passed over. Depth, length of a
 * name and number of names are bounded, so that a wrong or hostile file ends in one line.
 */

/** Messages of onnx.proto that can hold a tensor, and where: field number to message. */
const messages: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  model: { 7: 'graph', 20: 'training', 25: 'function' },
  training: { 1: 'graph', 2: 'graph' },
  graph: { 1: 'node', 5: 'tensor', 15: 'sparse' },
  function: { 7: 'node', 11: 'attribute' },
  node: { 5: 'attribute' },
  attribute: { 5: 'tensor', 6: 'graph', 10: 'tensor', 11: 'graph', 22: 'sparse', 23: 'sparse' },
  sparse: { 1: 'tensor', 2: 'tensor' },
  tensor: { 13: 'entry' },
  entry: {},
};

/** Texts that are read: `StringStringEntryProto`. */
const texts: Readonly<Record<string, Readonly<Record<number, 'key' | 'value'>>>> = {
  entry: { 1: 'key', 2: 'value' },
};

const maxDepth = 64;
const maxTextBytes = 4096;
const maxLocations = 4096;
/** Bytes of the longest number: 64 bits, seven in each. */
const maxNumberBytes = 10;

interface OpenMessage {
  readonly kind: string;
  /** Where it ends in the file; infinite for the file itself. */
  readonly end: number;
  key: string;
  value: string;
}

/** Reads one file, part by part. */
export class OnnxFileReader {
  readonly #locations = new Set<string>();
  readonly #open: OpenMessage[] = [{ kind: 'model', end: Number.POSITIVE_INFINITY, key: '', value: '' }];
  /** Bytes of the file that were read or passed over. */
  #at = 0;
  /** Bytes that are still to be passed over. */
  #skip = 0;
  /** The number that is being read, and how many of its bytes were. */
  #number = 0;
  #numberBytes = 0;
  /** The field whose length comes next; undefined where a field begins. */
  #field: number | undefined;
  #wire = 0;
  /** The text that is being read. */
  #text: { readonly into: 'key' | 'value'; readonly bytes: Uint8Array; filled: number } | undefined;
  #hasGraph = false;

  /** @throws Error for what is not an ONNX file */
  push(part: Uint8Array): void {
    let from = 0;
    while (from < part.length) {
      if (this.#skip > 0) {
        const count = Math.min(this.#skip, part.length - from);
        this.#skip -= count;
        this.#at += count;
        from += count;
        this.#closeEnded();
      } else if (this.#text !== undefined) {
        from += this.#readText(part.subarray(from));
      } else {
        this.#readByte(part[from++]);
      }
    }
  }

  /** Names of files, relative to the folder of this one, in their order. @throws Error for a file that ends within */
  finish(): string[] {
    const isWithin = this.#open.length > 1 || this.#skip > 0 || this.#numberBytes > 0;
    if (isWithin || this.#field !== undefined || this.#text !== undefined) throw damaged('it ends too early');
    if (!this.#hasGraph) throw damaged('it has no graph');
    return [...this.#locations].sort();
  }

  #readByte(byte: number): void {
    this.#at++;
    this.#numberBytes++;
    // lengths and fields are far below 2^53; a plain value may be any 64 bits, and is not used
    this.#number += (byte & 127) * 2 ** (7 * (this.#numberBytes - 1));
    if (byte > 127) {
      if (this.#numberBytes === maxNumberBytes) throw damaged('a number is too long');
      return;
    }
    const number = this.#number;
    this.#number = 0;
    this.#numberBytes = 0;
    if (this.#field === undefined) this.#beginField(number);
    else if (this.#wire === 2) this.#beginBytes(this.#field, number);
    else this.#field = undefined;
    this.#closeEnded();
  }

  #beginField(tag: number): void {
    this.#wire = tag % 8;
    const field = Math.floor(tag / 8);
    if (field === 0 || field >= 2 ** 29) throw damaged(`a field has the number ${field}`);
    if (this.#wire === 0 || this.#wire === 2) this.#field = field;
    else if (this.#wire === 1) this.#beginSkip(8);
    else if (this.#wire === 5) this.#beginSkip(4);
    else throw damaged(`a field has the wire type ${this.#wire}`);
  }

  #beginBytes(field: number, length: number): void {
    this.#field = undefined;
    const { kind } = this.#innermost;
    const text = texts[kind]?.[field];
    const inner = messages[kind][field];
    const end = this.#at + length;
    if (end > this.#innermost.end) throw damaged('a field is longer than what it stands in');
    if (text !== undefined) {
      if (length > maxTextBytes) throw damaged(`a name has ${length} bytes`);
      this.#text = { into: text, bytes: new Uint8Array(length), filled: 0 };
      if (length === 0) this.#closeText();
    } else if (inner === undefined) {
      this.#skip = length;
    } else {
      if (this.#open.length === maxDepth) throw damaged(`graphs stand ${maxDepth} deep in each other`);
      if (kind === 'model' && inner === 'graph') this.#hasGraph = true;
      this.#open.push({ kind: inner, end, key: '', value: '' });
    }
  }

  #beginSkip(bytes: number): void {
    if (this.#at + bytes > this.#innermost.end) throw damaged('a field is longer than what it stands in');
    this.#skip = bytes;
  }

  #readText(part: Uint8Array): number {
    const text = this.#text!;
    const count = Math.min(part.length, text.bytes.length - text.filled);
    text.bytes.set(part.subarray(0, count), text.filled);
    text.filled += count;
    this.#at += count;
    if (text.filled === text.bytes.length) this.#closeText();
    return count;
  }

  #closeText(): void {
    const { into, bytes } = this.#text!;
    this.#text = undefined;
    this.#innermost[into] = new TextDecoder().decode(bytes);
    this.#closeEnded();
  }

  /** Leaves all messages that end here. */
  #closeEnded(): void {
    if (this.#skip > 0 || this.#text !== undefined) return;
    while (this.#at >= this.#innermost.end) {
      if (this.#field !== undefined || this.#numberBytes > 0) throw damaged('a field is cut off');
      const { kind, key, value } = this.#open.pop()!;
      if (kind !== 'entry' || key !== 'location') continue;
      this.#locations.add(value);
      if (this.#locations.size > maxLocations) throw damaged(`it names more than ${maxLocations} files`);
    }
  }

  get #innermost(): OpenMessage {
    return this.#open[this.#open.length - 1];
  }
}

function damaged(problem: string): Error {
  return new Error(`it is not an ONNX file: ${problem}`);
}

/**
 * The file that a location names, as parts below the folder of the ONNX file.
 * @throws Error for a location outside of it, which onnxruntime does not read either
 */
export function locationParts(location: string): string[] {
  const parts = location.split(/[/\\]/).filter((part) => part !== '.' && part !== '');
  const isOutside = /^([/\\]|[A-Za-z]:)/.test(location) || parts.includes('..') || parts.length === 0;
  if (isOutside || location.includes('\0')) {
    throw new Error(`its data lies in ${JSON.stringify(location)}, outside of its folder`);
  }
  return parts;
}
