/**
 * What is opened one after the other, and closed together in the opposite order. Node 22 has no
 * `AsyncDisposableStack`.
 */

export class OpenParts implements AsyncDisposable {
  #closing: (() => void | PromiseLike<void>)[] = [];

  /** Adds `part`, and gives it back. */
  use<Part extends AsyncDisposable | Disposable>(part: Part): Part {
    this.defer(() => (Symbol.asyncDispose in part ? part[Symbol.asyncDispose]() : part[Symbol.dispose]()));
    return part;
  }

  defer(close: () => void | PromiseLike<void>): void {
    this.#closing.push(close);
  }

  /** Hands all parts over, so that disposing of this object closes nothing. */
  move(): OpenParts {
    const moved = new OpenParts();
    moved.#closing = this.#closing;
    this.#closing = [];
    return moved;
  }

  /** Closes every part, also when one of them fails; rejects with the first failure. */
  async [Symbol.asyncDispose](): Promise<void> {
    const failures: unknown[] = [];
    for (let close = this.#closing.pop(); close !== undefined; close = this.#closing.pop()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}
