// Copies runs of a dense tensor into blocks. Each unit of a block is written once, and no unit outside of the runs.

@group(0) @binding(2) var<storage, read_write> slab: array<Stored>;
@group(0) @binding(3) var<storage, read> tensor: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let unit = unitOf(id.y * groups.x * 64u + id.x);
  if (unit.isPresent) {
    slab[unit.inSlab] = tensor[unit.inTensor];
  }
}
