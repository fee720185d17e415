/** Random programs: mostly well typed, sometimes not, and of every kind of statement and expression. */

type Type = 'int' | 'float' | 'text' | 'bool' | 'list' | 'dict';

const types: readonly Type[] = ['int', 'float', 'text', 'bool', 'list', 'dict'];

export class RandomPrograms {
  #state: number;
  #depth = 0;
  #names: Map<string, Type> = new Map();
  #next = 0;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** The text of a program whose function `main` takes nothing. */
  program(): string {
    this.#next = 0;
    this.#names = new Map([
      ['G', 'int'],
      ['H', 'list'],
    ]);
    const globals = `G = ${this.#below(9)}\nH = [1, 2.5, "g"]\n`;
    const outer = this.#names;
    this.#names = new Map([...outer, ['p', 'int'], ['q', 'float']]);
    const helper = `def helper(p, q = 1.5):\n${this.#block(1, 3)}    return ${this.#value(this.#pick(types))}\n`;
    this.#names = new Map(outer);
    const main = this.#block(1, 6);
    const seen = [...this.#names.keys()].filter((name) => name !== 'G' && name !== 'H');
    return `${globals}${helper}def main():\n${main}    return [${seen.join(', ')}]\n`;
  }

  #random(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  #below(n: number): number {
    return Math.floor(this.#random() * n);
  }

  #pick<T>(items: readonly T[]): T {
    return items[this.#below(items.length)];
  }

  #block(level: number, most: number): string {
    let text = '';
    const count = 1 + this.#below(most);
    for (let i = 0; i < count; i++) text += this.#statement(level);
    return text;
  }

  #inner(level: number): string {
    const before = new Map(this.#names);
    const text = this.#block(level + 1, 2);
    this.#names = before;
    return text;
  }

  #fresh(type: Type): string {
    const known = [...this.#names].filter(([name, each]) => each === type && /^v/.test(name));
    const name = known.length > 0 && this.#random() < 0.4 ? this.#pick(known)[0] : `v${this.#next++}`;
    this.#names.set(name, type);
    return name;
  }

  #statement(level: number): string {
    const pad = '    '.repeat(level);
    const kind = this.#below(level < 4 ? 12 : 6);
    const type = this.#pick(types);
    switch (kind) {
      case 6:
      case 7:
        return `${pad}if ${this.#value('bool')}:\n${this.#inner(level)}${pad}else:\n${this.#inner(level)}`;
      case 8: {
        const over = this.#random() < 0.5 ? `range(${this.#below(6)})` : this.#value('list');
        const before = new Map(this.#names);
        const name = `v${this.#next++}`;
        this.#names.set(name, 'int');
        const leave =
          this.#random() < 0.3 ? `${pad}    if ${this.#value('bool')}:\n${pad}        break\n` : '';
        const text = `${pad}for ${name} in ${over}:\n${leave}${this.#inner(level)}`;
        this.#names = before;
        return text;
      }
      case 9: {
        const list = this.#value('list');
        const name = this.#fresh('list');
        return `${pad}${name} = ${list}\n${pad}${name}.append(${this.#value(this.#pick(types))})\n`;
      }
      case 10: {
        const dict = this.#value('dict');
        const name = this.#fresh('dict');
        return `${pad}${name} = ${dict}\n${pad}${name}[${this.#value('text')}] = ${this.#value(this.#pick(types))}\n`;
      }
      case 11: {
        const names = [...this.#names].filter(([name]) => name.startsWith('v'));
        if (names.length === 0) return `${pad}pass\n`;
        const [name, known] = this.#pick(names);
        return `${pad}${name} ${this.#pick(['+=', '-=', '*='])} ${this.#value(known)}\n`;
      }
      default: {
        const value = this.#value(type);
        return `${pad}${this.#fresh(type)} = ${value}\n`;
      }
    }
  }

  #value(wanted: Type): string {
    const type = this.#random() < 0.03 ? this.#pick(types) : wanted;
    if (++this.#depth > 4) {
      this.#depth--;
      return this.#leaf(type);
    }
    const text = this.#random() < 0.3 ? this.#leaf(type) : this.#compound(type);
    this.#depth--;
    return text;
  }

  #leaf(type: Type): string {
    const known = [...this.#names].filter(([, each]) => each === type).map(([name]) => name);
    if (known.length > 0 && this.#random() < 0.6) return this.#pick(known);
    switch (type) {
      case 'int':
        return String(this.#below(20) - 5);
      case 'float':
        return this.#pick(['0.5', '1.0', '2.25', '1e3', '0.1', '-3.5']);
      case 'text':
        return this.#pick(['"a"', '"bc"', '""', '"x,y z"', '"Hello"', '"7"']);
      case 'bool':
        return this.#pick(['True', 'False']);
      case 'list':
        return this.#pick(['[]', '[1, 2, 3]', '["a", "b"]', '[0.5, 2]']);
      case 'dict':
        return this.#pick(['{}', '{"a": 1}', '{"x": [1], "y": 2.5}']);
    }
  }

  #compound(type: Type): string {
    const v = (each: Type): string => this.#value(each);
    const any = (): string => this.#value(this.#pick(types));
    switch (type) {
      case 'int':
        return this.#pick([
          () => `(${v('int')} ${this.#pick(['+', '-', '*', '//', '%', '&', '|', '^'])} ${v('int')})`,
          () => `len(${v(this.#pick(['text', 'list', 'dict']))})`,
          () => `(-${v('int')})`,
          () => `(${v('int')} if ${v('bool')} else ${v('int')})`,
          () => `max(${v('int')}, ${v('int')})`,
          () => `int(${v('float')})`,
          () => `${v('text')}.find(${v('text')})`,
          () => `${v('list')}[${this.#below(4) - 2}]`,
          () => `abs(${v('int')})`,
        ])();
      case 'float':
        return this.#pick([
          () =>
            `(${v('float')} ${this.#pick(['+', '-', '*', '/', '//', '%'])} ${v(this.#pick(['float', 'int']))})`,
          () => `(${v('int')} / ${v('int')})`,
          () => `float(${v('int')})`,
          () => `min(${v('float')}, ${v('float')})`,
          () => `(-${v('float')})`,
        ])();
      case 'text':
        return this.#pick([
          () => `(${v('text')} + ${v('text')})`,
          () => `str(${any()})`,
          () => `repr(${any()})`,
          () => `${v('text')}.${this.#pick(['upper', 'lower', 'strip', 'title', 'capitalize'])}()`,
          () => `${v('text')}.replace(${v('text')}, ${v('text')})`,
          () => `${v('text')}[${this.#below(3)}:${this.#pick(['', '-1', '5'])}]`,
          () => `("%s|%r" % (${any()}, ${any()}))`,
          () => `"{}-{}".format(${any()}, ${any()})`,
          () => `type(${any()})`,
          () => `(${v('text')} * ${this.#below(3)})`,
          () => `",".join([str(x) for x in ${v('list')}])`,
        ])();
      case 'bool':
        return this.#pick([
          () =>
            `(${v('int')} ${this.#pick(['<', '<=', '>', '>=', '==', '!='])} ${v(this.#pick(['int', 'float']))})`,
          () => `(${v('text')} ${this.#pick(['<', '==', '>='])} ${v('text')})`,
          () => `(not ${any()})`,
          () => `(${v('bool')} ${this.#pick(['and', 'or'])} ${v('bool')})`,
          () => `(${v('text')} in ${v(this.#pick(['text', 'dict', 'list']))})`,
          () => `(${v('list')} == ${v('list')})`,
          () => `bool(${any()})`,
          () => `${v('text')}.${this.#pick(['startswith', 'endswith'])}(${v('text')})`,
          () => `any(${v('list')})`,
        ])();
      case 'list':
        return this.#pick([
          () => `[${any()}, ${any()}]`,
          () => `(${v('list')} + ${v('list')})`,
          () => `[x for x in ${v('list')} if ${v('bool')}]`,
          () => `[(i, x) for i, x in enumerate(${v('list')})]`,
          () => `${v('list')}[::${this.#pick(['-1', '2', '1'])}]`,
          () => `sorted([${v('int')}, ${v('float')}, ${v('int')}], key = lambda x: -x)`,
          () => `${v('dict')}.${this.#pick(['keys', 'values', 'items'])}()`,
          () => `${v('text')}.split(${this.#pick(['","', '"a"', '" "'])})`,
          () => `list(range(${this.#below(4)}, ${this.#below(9)}, ${1 + this.#below(3)}))`,
          () => `[helper(${v('int')})]`,
          () => `reversed(${v('list')})`,
          () => `list(zip(${v('list')}, ${v('list')}))`,
        ])();
      case 'dict':
        return this.#pick([
          () => `{${v('text')}: ${any()}}`,
          () => `{str(x): x for x in ${v('list')}}`,
          () => `dict(${v('dict')}, z = ${any()})`,
          () => `{"g": ${v('dict')}.get(${v('text')}, ${any()})}`,
        ])();
    }
  }
}
