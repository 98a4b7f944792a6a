# SPDX-License-Identifier: MIT
# How Doxygen reads sources and documents (see Doxyfile.in). In a /// block a formula, set in by two
# columns more, its source, and a slot ("/// Units    seconds") begin a line of their own. A link to
# a header leads to its page. Headings lose their code font, which Doxygen 1.9.4 prints as <tt>. In a
# table `!Traits::kName` would be a link. Doxygen finds images by name.
# One line stays one line, so that messages name the right one.
/^ *\/\/\//s|Alg\. |Alg.\&nbsp;|g
s|^( *///) {3}([^ ].*)$|\1 <br>\&emsp;\2|
s|^( *///) {4,}(\[.*\])$|\1 \&emsp;\2|
s|^( *///) ([A-Za-z_]+(, [A-Za-z_]+)*) {2,}([^ ].*)$|\1 <br><b>\2</b>\&ensp;\4|
s|^( *///) {4,}|\1 |
s|\]\((\.\./)?include/(attile/[^)]*)\)|](@ref \2)|g
/^##* /s|`||g
/^\| /s|\(!([A-Z])|(! \1|g
s|^(!\[[^]]*\]\()(\.\./\.\./)?docs/|\1|
