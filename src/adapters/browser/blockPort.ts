/**
 * `src/embed/blockPort.ts` in a browser. Hand-offs to other processes go by sockets, which do not exist there, and so does
 * the shared tier: nothing is ever shared.
 */
export class BlockPort {
  readonly hasShared = false;
}
