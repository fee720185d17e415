/** The row of the tier that runtimes share, in a browser: sockets to a server of keys do not exist there. */

import type { RemoteOptions } from '../../backends/remote/remoteTier.ts';
import type { TierRow } from '../../backends/tierRow.ts';
import { configError } from '../../runtime/errors.ts';

export const remoteTier: TierRow<RemoteOptions> = {
  name: 'remote',
  title: 'remote',
  optionNames: ['remote'],
  fieldNames: {},
  canBeTop: false,
  check({ remote }) {
    if (remote === undefined) return;
    throw configError('remote', 'needs sockets, which a browser does not have', 'Leave it out.');
  },
  wish: () => undefined,
  open() {
    throw configError('remote', 'cannot be opened in a browser', 'Leave it out.');
  },
};
